"""Gains: as the paper prints them, from its own numbers and from ours."""

from types import SimpleNamespace

import pytest

from rnc.experiments.gains import (
    AVERAGE,
    BEST_OTHER,
    LOWER,
    gain_name,
    with_average,
    with_best_other,
    with_gains,
)
from rnc.experiments.plan import Outcome, Row
from rnc.experiments.published import error_name, published
from rnc.experiments.write import table


def outcomes_of(rows: list[Row], seeds: dict[str, list[int]] | None = None) -> list[Outcome]:
    """Finished runs of the seeds that the rows have values for, 0 and on unless said."""
    found = {}
    for row in rows:
        chosen = (seeds or {}).get(row.method, list(range(len(row.values))))
        finished = [
            SimpleNamespace(planned=SimpleNamespace(config=SimpleNamespace(seed=seed), fold=None))
            for seed in chosen
        ]
        line = SimpleNamespace(method=row.method, setting=row.setting)
        found[row.method, row.setting] = Outcome(line, finished)
    return list(found.values())


def paper_rows(result: str, dataset: str) -> list[Row]:
    """The numbers of the paper as if they were ours, too."""
    return [
        Row(*key, (number.mean,), number.mean) for key, number in published(result, dataset).items()
    ]


def printed(derive, result: str, dataset: str) -> dict[tuple[str, str, str], float]:
    rows = paper_rows(result, dataset)
    derived = derive(rows, outcomes_of(rows))
    assert all(row in derived for row in rows)
    assert len(derived) > len(rows)
    for row in derived:
        assert row.paper == pytest.approx(row.values[0], abs=1e-6)
    return {(row.method, row.setting, row.score): row.paper for row in derived}


@pytest.mark.parametrize(
    ("dataset", "percent"),
    [("agedb", 5.8), ("tuab", 9.3), ("mpiifacegaze", 11.7), ("skyfinder", 7.0)],
)
def test_main_prints_the_average_reduction_of_the_text(dataset: str, percent: float) -> None:
    found = printed(with_average, "main", dataset)
    assert round(found[AVERAGE, "", LOWER], 1) == percent


def test_gains_are_the_green_numbers_of_the_paper() -> None:
    main = printed(with_average, "main", "agedb")
    assert main["RnC(L1)", "", "gain in MAE"] == pytest.approx(0.49)
    assert main["RnC(L1)", "", "gain in R2"] == pytest.approx(0.022)
    gaze = printed(with_average, "main", "mpiifacegaze")
    assert gaze["RnC(Huber)", "", "gain in angular error"] == pytest.approx(1.19)
    transfer = printed(with_gains, "transfer", "agedb")
    to_imdb = "agedb -> imdb-wiki (2,000), linear probing"
    assert transfer["RnC(L1)", to_imdb, "gain in MAE"] == pytest.approx(1.13)
    assert transfer["RnC(L1)", to_imdb, "gain in R2"] == pytest.approx(0.060)
    unseen = printed(with_gains, "unseen", "imdb-wiki")
    assert unseen["RnC(L1)", "bi-modal", "gain in MAE, unseen"] == pytest.approx(2.48)
    assert unseen["RnC(L1)", "tri-modal", "gain in MAE, all"] == pytest.approx(1.06)
    large = printed(with_gains, "resnet50", "skyfinder")
    assert large["RnC(L1)", "", "gain in MAE"] == pytest.approx(0.10)
    assert not any(key[2].startswith("gain") and not key[0].startswith("RnC(") for key in main)


@pytest.mark.parametrize(
    ("dataset", "gain"),
    [("agedb", 0.31), ("tuab", 0.31), ("mpiifacegaze", 0.18), ("skyfinder", 0.06)],
)
def test_the_last_line_of_table_3(dataset: str, gain: float) -> None:
    found = printed(with_best_other, "sota", dataset)
    name = gain_name(error_name(dataset))
    gains = [value for key, value in found.items() if key[0] == BEST_OTHER and key[2] == name]
    assert gains == [pytest.approx(gain)]


def test_gains_are_over_the_seeds_that_both_have() -> None:
    rows = [
        Row("L1", "", "MAE", (6.0, 8.0)),
        Row("RnC(L1)", "", "MAE", (5.0, 7.5)),
        Row("MSE", "", "MAE", ()),
        Row("RnC(MSE)", "", "MAE", (4.0,)),
    ]
    seeds = {"L1": [0, 2], "RnC(L1)": [1, 2], "MSE": [], "RnC(MSE)": [0]}
    found = {(row.method, row.score): row for row in with_average(rows, outcomes_of(rows, seeds))}
    assert found["RnC(L1)", "gain in MAE"].values == (0.5,)
    assert found["RnC(L1)", LOWER].values == (6.25,)
    assert found["RnC(MSE)", "gain in MAE"].values == ()
    assert (AVERAGE, LOWER) not in found  # of heads with different seeds there is no mean


def test_a_gain_on_the_best_other_method_names_it_and_may_be_below_0() -> None:
    rows = [
        Row("LDE", "", "MAE", (2.0, 3.0)),
        Row("SupCon", "fine-tuning", "MAE", (9.0, 9.0)),
        Row("RnC(L1)", "linear probing", "MAE", (2.5, 3.0)),
    ]
    last = with_best_other(rows, outcomes_of(rows))[-1]
    assert last == Row(BEST_OTHER, "LDE", "gain in MAE", (-0.5, 0.0))
    assert with_best_other(rows[:2], outcomes_of(rows[:2])) == rows[:2]


def test_small_gains_keep_their_digits() -> None:
    line = table([Row("RnC(L1)", "", "gain in R2", (0.0213,), 0.022)])[-1]
    assert line == "| RnC(L1) | 0.021 | 0.022 |"
