"""The options of the fuzzers, the fixture that hands them their cases, and the table at the end."""

from collections import Counter
from collections.abc import Iterator

import pytest

from attack.harness import Attack, table

BLOCK = 100
"""Cases of one test: blocks of a large run are shared out to the processes of pytest-xdist."""
CI_CASES = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attack")
    group.addoption("--attack-cases", type=int, metavar="N", help="cases of a fuzzer of share 1")
    group.addoption(
        "--attack-first", type=int, default=0, metavar="K", help="number of the first case"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "attack(name, share=1.0, ci=100): a fuzzer; tests/attack says how one is added"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Cut the cases of a fuzzer into blocks, a test each."""
    if "attack" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("attack")
    assert mark is not None, f"{metafunc.definition.nodeid} needs @pytest.mark.attack(name)"
    # The options do not exist where pytest was not started on this folder.
    asked = metafunc.config.getoption("attack_cases", None)
    first = metafunc.config.getoption("attack_first", 0)
    number = mark.kwargs.get("ci", CI_CASES)
    if asked is not None:
        number = max(1, round(asked * mark.kwargs.get("share", 1.0)))
    cases = range(first, first + number)
    blocks = [cases[start : start + BLOCK] for start in range(0, number, BLOCK)]
    ids = [f"{block[0]}-{block[-1]}" for block in blocks]
    metafunc.parametrize(
        "attack", [(mark.args[0], block) for block in blocks], ids=ids, indirect=True
    )


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    """The cases of the fuzzer that the mark of the test names."""
    attack = Attack(*request.param)
    yield attack
    # Properties of a test travel from the processes of pytest-xdist to the one that prints.
    request.node.user_properties.append(("attack", (attack.name, dict(attack.counts))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts of all fuzzers as a table."""
    counts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "teardown":
                continue
            for key, value in report.user_properties:
                if key == "attack":
                    name, outcomes = value
                    counts.setdefault(name, Counter()).update(outcomes)
    if counts:
        terminalreporter.section("attack")
        for line in table(counts):
            terminalreporter.write_line(line)
