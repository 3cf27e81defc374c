"""Processes that are killed while they write."""

import pytest

from attack.harness import Attack
from attack.kills_cases import Ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("kills"))


@pytest.mark.attack("kills", share=0.02, ci=2)
def test_kills(attack: Attack, ground: Ground) -> None:
    attack(ground.try_kill)
