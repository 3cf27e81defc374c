"""Commands that are killed or get Ctrl-C while they write: one place each in CI, all on demand."""

from collections.abc import Iterator
from functools import partial

import pytest

from attack.harness import Attack
from attack.kills_cases import COMMANDS, INTERRUPTED, Ground

PIECES = 10
"""Tests that share the places of a command, so that several processes can share them out."""
CI_COMMANDS = ("fit", "evaluate", "reproduce", "search")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "piece" in metafunc.fixturenames:
        is_asked = metafunc.config.getoption("attack_cases", None) is not None
        cases = [(name, piece) for piece in range(PIECES) for name in COMMANDS]
        metafunc.parametrize(
            ("name", "piece"), cases if is_asked else [(name, None) for name in CI_COMMANDS]
        )


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    ground = Ground(tmp_path_factory.mktemp("kills"))
    yield ground
    ground.close()


def test_kills(
    name: str, piece: int | None, ground: Ground, request: pytest.FixtureRequest
) -> None:
    blows = ("kill", "half", "interrupt") if name in INTERRUPTED else ("kill", "half")
    for blow in blows:
        places = ground.places(name, blow)
        chosen = places[len(places) // 2 :][:1] if piece is None else places[piece::PIECES]
        cases = {f"change {at}": partial(ground.try_blow, name, at, blow) for at in chosen}
        attack = Attack(f"{blow}: {name}", range(0))
        repeat = f"pytest tests/attack/test_kills.py -k '{name}' --attack-cases 1"
        try:
            attack.try_all(cases, repeat)
        finally:
            request.node.user_properties.append(("attack", (attack.name, dict(attack.counts))))
