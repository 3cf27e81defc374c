"""The fuzzers are only worth what their harness counts."""

import numpy as np
import pytest

from attack.harness import Attack, Lost, Silent, Verdict, generator, table

OUTCOMES = ["right", "refused", Silent("R2 is 0.99"), Lost("model gone"), KeyError("config")]


def one_of_each(rng: np.random.Generator) -> Verdict:
    outcome = OUTCOMES[rng.integers(len(OUTCOMES))]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def test_each_outcome_is_counted_and_faults_fail_with_their_text() -> None:
    attack = Attack("example", range(60))
    with pytest.raises(pytest.fail.Exception) as failure:
        attack(one_of_each)
    assert set(attack.counts) == {"right", "refused", "silent", "lost", "tracebacks"}
    assert attack.counts.total() == 60
    faults = sum(attack.counts[key] for key in ("silent", "lost", "tracebacks"))
    text = str(failure.value)
    assert f"{faults} of 60 cases of 'example' went wrong" in text
    assert "-k example --attack-cases 1 --attack-first NUMBER" in text
    assert any(words in text for words in ("R2 is 0.99", "model gone", "KeyError: 'config'"))


def test_a_fuzzer_without_faults_passes() -> None:
    attack = Attack("example", range(5, 12))
    attack(lambda rng: "right" if rng.random() < 2 else "refused")
    assert attack.counts == {"right": 7}


def test_a_case_is_repeated_by_its_number_and_is_like_no_other() -> None:
    numbers = [generator(name, case).random() for name in ("a", "b") for case in (0, 1, 7)]
    assert len(set(numbers)) == 6
    assert numbers[5] == generator("b", 7).random()


def test_the_table_adds_up_all_fuzzers() -> None:
    first, second = Attack("loss", range(1200)), Attack("images", range(3))
    first(lambda rng: "right")
    second(lambda rng: "refused")
    assert table({"loss": first.counts, "images": second.counts}) == [
        "| fuzzer | cases | right | refused | silent | tracebacks | lost |",
        "|---|---|---|---|---|---|---|",
        "| images | 3 | 0 | 3 | 0 | 0 | 0 |",
        "| loss | 1,200 | 1,200 | 0 | 0 | 0 | 0 |",
        "| altogether | 1,203 | 1,200 | 3 | 0 | 0 | 0 |",
    ]
