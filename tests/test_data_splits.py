"""Seeded splits and given ones."""

import numpy as np
import pytest

from rnc.data.errors import DataError
from rnc.data.splits import (
    CALIBRATION,
    SPLITS,
    check_groups,
    check_split,
    make_split,
    take_calibration,
)


def sizes(split):
    return [int((split == name).sum()) for name in SPLITS]


def ages(n, seed=0):
    return np.random.default_rng(seed).gamma(4.0, 10.0, (n, 1)).round()


@pytest.mark.parametrize(
    ("n", "expected"), [(3, [1, 1, 1]), (10, [7, 1, 2]), (1003, [702, 100, 201])]
)
def test_sizes_follow_the_fractions(n, expected):
    assert sizes(make_split(ages(n))) == expected


def test_every_stretch_of_the_target_is_shared_out_alike():
    y = ages(1000)
    split = make_split(y, seed=3)
    stretches = np.argsort(y[:, 0], kind="stable").reshape(10, 100)
    for rows in stretches:
        train, val, test = sizes(split[rows])
        assert 65 <= train <= 75
        assert 7 <= val <= 13
        assert 16 <= test <= 24


def test_seed_decides_the_split():
    y = ages(200)
    assert (make_split(y, seed=1) == make_split(y, seed=1)).all()
    assert (make_split(y, seed=1) != make_split(y, seed=2)).mean() > 0.2


def test_order_of_named_rows_does_not_matter():
    y, names = ages(300), np.array([f"{i}.jpg" for i in range(300)])
    shuffled = np.random.default_rng(5).permutation(300)
    assert (make_split(y, names)[shuffled] == make_split(y[shuffled], names[shuffled])).all()


def test_two_opposite_targets_are_still_balanced():
    # The plain sum of their ranks would be the same for all rows.
    rise = np.random.default_rng(0).permutation(500).astype(float)
    split = make_split(np.stack([rise, -rise], axis=1))
    for stretch in np.argsort(rise).reshape(10, 50):
        assert 3 <= (split[stretch] == "val").sum() <= 7


def test_few_rows_still_reach_every_split():
    assert sizes(make_split(ages(3), fractions=(0.1, 0.1, 0.8))) == [1, 1, 1]
    assert sizes(make_split(ages(5), fractions=(0.02, 0.95, 0.03))) == [1, 3, 1]


def test_zero_fraction_leaves_a_split_empty():
    assert sizes(make_split(ages(100), fractions=(0.9, 0.1, 0))) == [90, 10, 0]
    assert sizes(make_split(ages(8), fractions=(1, 0, 0))) == [8, 0, 0]


def test_groups_stay_whole_and_near_the_fractions():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 60, 1200)
    y = (rng.normal(size=60)[group] + 0.3 * rng.normal(size=1200))[:, None]
    split = make_split(y, group=group, seed=4)
    check_groups(split, group, np.arange(1200), "t.csv")
    assert np.allclose(np.array(sizes(split)) / 1200, (0.7, 0.1, 0.2), atol=0.03)
    spread = y.std()
    for name in SPLITS:
        assert abs(y[split == name].mean() - y.mean()) < 0.2 * spread


def test_seed_decides_which_groups_go_where():
    group = np.repeat(np.arange(40), 5)
    y = np.random.default_rng(0).normal(size=(200, 1))
    one, other = (make_split(y, group=group, seed=seed) for seed in (0, 1))
    assert (one != other).any()


def test_every_split_gets_a_group_even_when_one_is_huge():
    group = np.array(["a"] * 500 + ["b"] * 3 + ["c"] * 2)
    split = make_split(ages(505), group=group)
    assert all(sizes(split))
    assert (split[:500] == "train").all()


def test_too_few_rows_or_groups_are_refused():
    with pytest.raises(DataError, match=r"into 3 parts needs at least 3 rows; got 2\."):
        make_split(ages(2))
    with pytest.raises(DataError, match=r"at least 3 groups; got 2\. Add data, or give a split"):
        make_split(ages(9), group=np.array(list("aaaabbbbb")))


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((0.5, 0.5), r"three numbers >= 0 .*; got \(0\.5, 0\.5\)"),
        ((1.2, -0.2, 0), r"three numbers >= 0"),
        ((0, 0.5, 0.5), r"with some for train; got \(0, 0\.5, 0\.5\)"),
        ((0.7, 0.1, 0.1), r"must add up to 1; got \(0\.7, 0\.1, 0\.1\), which is 0\.9"),
        ((float("nan"), 0.5, 0.5), r"three numbers >= 0"),
    ],
)
def test_bad_fractions_are_refused(fractions, message):
    with pytest.raises(DataError, match=message):
        make_split(ages(50), fractions=fractions)


def test_synonyms_of_split_names_are_understood():
    words = ["Training", " valid", "validation", "DEV", "testing", "train", "val", "test"]
    expected = ["train", "val", "val", "val", "test", "train", "val", "test"]
    assert check_split(words, range(8), "t.csv").tolist() == expected


def test_unknown_split_name_names_row_and_words():
    with pytest.raises(
        DataError, match=r"^t\.csv row 4: fold is 'holdout', expected one of train,"
    ):
        check_split(["train", "val", "holdout"], [2, 3, 4], "t.csv", column="fold")


def test_empty_split_is_named():
    message = r"fold has no rows for val \(it has 2 train, 0 val, 1 test\)\. Mark some rows as val"
    with pytest.raises(DataError, match=message):
        check_split(["train", "train", "test"], [2, 3, 4], "t.csv", column="fold")


def test_group_in_two_splits_names_groups_and_rows():
    split = np.array(["train", "val", "train", "test", "train"])
    group = np.array(["ann", "ann", "bob", "bob", "eve"])
    message = (
        r"t\.csv: 2 of 3 values of person are in more than one split: "
        r"ann \(row 2 train, row 3 val\); bob \(row 4 train, row 5 test\)\. Move each into one"
    )
    with pytest.raises(DataError, match=message):
        check_groups(split, group, [2, 3, 4, 5, 6], "t.csv", column="person")


def test_calibration_rows_come_from_training_by_group_and_stay_balanced():
    y, people = ages(600), np.arange(600) // 4
    split = make_split(y, group=people)
    taken = take_calibration(split, y, range(600), share=0.25, group=people)
    moved = taken == CALIBRATION
    assert (split[moved] == "train").all()
    assert (taken[~moved] == split[~moved]).all()
    assert moved.sum() == pytest.approx(0.25 * (split == "train").sum(), abs=8)
    assert not set(people[moved]) & set(people[~moved])
    np.testing.assert_allclose(y[moved].mean(), y[taken == "train"].mean(), rtol=0.1)


def test_without_a_share_a_split_stays_the_very_array():
    split = make_split(ages(30))
    assert take_calibration(split, ages(30), range(30), share=0) is split


def test_a_column_may_name_calibration_rows():
    words = ["train", "dev", "test", "Cal", "calibration"]
    assert check_split(words, range(5), "t.csv")[3:].tolist() == [CALIBRATION] * 2
    split = np.array(["train", "test", CALIBRATION])
    with pytest.raises(DataError, match=r"ann \(row 3 test, row 4 calibration\)"):
        check_groups(split, np.array(["bob", "ann", "ann"]), [2, 3, 4], "t.csv")


@pytest.mark.parametrize(
    ("split", "group", "share", "message"),
    [
        (["train"] * 9, None, 1.0, "from 0 to below 1, as 0.2; got 1.0"),
        (["train"] * 9, None, 0.9, r"leaves nothing to train on: there are 9 training rows\. Give"),
        (["train"] * 9, ["a"] * 9, 0.2, "there are 9 training rows in 1 groups"),
        (["train"] * 8 + ["calibration"], None, 0.2, "has 1 calibration rows already"),
    ],
)
def test_calibration_shares_that_cannot_be_are_refused(split, group, share, message):
    group = None if group is None else np.array(group)
    with pytest.raises(DataError, match=message):
        take_calibration(np.array(split), ages(9), range(9), share=share, group=group)
