"""Smaller and modal training sets."""

import dataclasses

import numpy as np
import pytest

from rnc.data import Table
from rnc.experiments.subsets import inside, modes, with_modes, with_size


def ramp(n: int = 4000) -> Table:
    rng = np.random.default_rng(0)
    y = rng.beta(2, 5, n) * 100
    split = np.array(["train", "train", "val", "test"] * n)[:n]
    names = np.array([str(i) for i in range(n)])
    return Table(y[:, None].astype(np.float32), y[:, None], ("y",), "table", split, names)


def test_a_smaller_training_set_is_part_of_a_larger_one() -> None:
    table = ramp()
    small, large = (set(with_size(table, n, 0).rows("train")) for n in (100, 500))
    assert (len(small), len(large)) == (100, 500)
    assert small < large
    assert with_size(table, 100, 0).rows("test").tolist() == table.rows("test").tolist()
    assert set(with_size(table, 100, 1).rows("train")) != small


@pytest.mark.parametrize(("count", "unseen"), [(2, 0.225), (3, 1 / 3)])
def test_ranges_and_gaps_fill_the_targets(count, unseen) -> None:
    table = ramp()
    ranges = modes(table, count, unseen)
    low, high = np.quantile(table.y[table.rows("train")], (0.01, 0.99))
    assert len(ranges) == count
    assert (ranges[0][0], ranges[-1][1]) == pytest.approx((low, high))
    assert sum(b - a for a, b in ranges) == pytest.approx((1 - unseen) * (high - low))


def test_a_modal_training_set_has_gaps_and_its_test_set_none() -> None:
    table = ramp()
    ranges = modes(table, 2, 0.225)
    part = with_modes(table, ranges, 0)
    for split in ("train", "val"):
        values = table.y[part.rows(split), 0]
        assert len(values) > 100
        assert inside(values, ranges).all()
    test = table.y[part.rows("test"), 0]
    counts, _ = np.histogram(test, 10, (ranges[0][0], ranges[-1][1]))
    assert counts.min() == counts.max() > 0
    assert (~inside(test, ranges)).mean() == pytest.approx(0.225, abs=0.06)


def test_the_modes_of_a_training_set_are_gaussian() -> None:
    table = ramp(40_000)
    ranges = modes(table, 2, 0.225)
    values = table.y[with_modes(table, ranges, 0).rows("train"), 0]
    low, high = ranges[0]
    first = values[inside(values, ranges[:1])]
    assert first.mean() == pytest.approx((low + high) / 2, abs=0.1 * (high - low))
    assert first.std() == pytest.approx((high - low) / 4, rel=0.25)


def test_a_test_set_with_a_hole_cannot_be_even() -> None:
    table = ramp()
    split = table.split.copy()
    split[(table.y[:, 0] > 20) & (table.y[:, 0] < 40) & (split == "test")] = "train"
    table = dataclasses.replace(table, split=split)
    with pytest.raises(
        ValueError, match=r"3 test rows in each of 10 bins .* the bin from .* has 0\. Mark more"
    ):
        with_modes(table, modes(table, 2, 0.225), 0)
