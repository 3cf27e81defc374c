"""Folds of a cross-validation: what is tested once, what stays together, what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rnc.data import read_table, table_from_arrays
from rnc.data.errors import DataError
from rnc.data.folds import all_folds, fold_split
from rnc.data.source import DataSource
from rnc.data.splits import PARTIAL


def ages(n, seed=0):
    return np.random.default_rng(seed).gamma(4.0, 10.0, (n, 1)).round()


def splits(count, y, names=None, **options):
    names = range(len(y)) if names is None else names
    return [fold_split(fold, y, names, **options) for fold in all_folds(count)]


@given(st.integers(3, 90), st.integers(2, 9), st.integers(0, 3), st.booleans())
def test_every_row_is_tested_once_and_groups_stay_whole(n, count, seed, grouped):
    y, group = ages(n), np.arange(n) // 3 if grouped else None
    if (n if group is None else group[-1] + 1) < max(count + 1, 4):
        return
    found = splits(count, y, group=group, seed=seed)
    assert sum((split == "test").astype(int) for split in found).tolist() == [1] * n
    for split in found:
        assert set(split) == {"train", "val", "test"}
        for value in () if group is None else np.unique(group):
            assert len(set(split[group == value])) == 1


def test_five_folds_have_the_shares_of_a_default_split():
    for split in splits(5, ages(1000)):
        assert [int((split == name).sum()) for name in ("train", "val", "test")] == [700, 100, 200]


def test_every_stretch_of_the_target_is_in_every_fold_alike():
    y = ages(1000)
    low = np.argsort(y[:, 0], kind="stable")[:100]
    assert all(16 <= (split[low] == "test").sum() <= 24 for split in splits(5, y))
    assert all(5 <= (split[low] == "val").sum() <= 15 for split in splits(5, y))


def test_the_order_of_named_rows_does_not_matter_and_the_seed_does():
    y, names = ages(300), np.array([f"{i}.jpg" for i in range(300)])
    order = np.random.default_rng(1).permutation(300)
    split = fold_split("2/4", y, names)
    assert (fold_split("2/4", y[order], names[order]) == split[order]).all()
    assert (fold_split("2/4", y, names, seed=1) != split).mean() > 0.2


@pytest.mark.parametrize("fold", ["0/5", "6/5", "1/1", "2", "a/b", "", "2/5/1", "-1/5"])
def test_what_is_no_fold_is_refused(fold):
    with pytest.raises(DataError, match=r"fold must be K/N, .*such as 2/5, with N >= 2; got"):
        fold_split(fold, ages(20), range(20))


def test_too_few_rows_or_groups_are_counted():
    with pytest.raises(DataError, match=r"5 folds need at least 5 rows; got 4\. Ask for fewer"):
        fold_split("1/5", ages(4), range(4))
    with pytest.raises(DataError, match="5 folds need at least 5 groups; got 4"):
        fold_split("1/5", ages(40), range(40), group=np.arange(40) % 4)
    with pytest.raises(DataError, match=r"leaves 1 of 3 groups for train and val.*more folds"):
        splits(2, ages(24), group=np.arange(24) // 8)
    with pytest.raises(DataError, match="needs 2 folds or more; got 1"):
        all_folds(1)


# ------------------------------------------------------------------------------- tables and files


def written(tmp_path, **more):
    rng = np.random.default_rng(0)
    columns = {
        "size": rng.normal(size=60),
        "street": np.arange(60) // 4,
        "price": rng.normal(size=60),
    }
    path = tmp_path / "houses.csv"
    pd.DataFrame(columns | more).to_csv(path, index=False)
    return path


def test_preprocessing_is_learned_from_the_training_rows_of_the_fold(tmp_path):
    path = written(tmp_path)
    sizes = pd.read_csv(path)["size"].to_numpy()
    for fold in all_folds(3):
        table = read_table(path, target="price", fold=fold, feature_columns=["size"])
        mean = table.preprocessing["columns"][0]["mean"]
        assert mean == pytest.approx(sizes[table.rows("train")].mean())


def test_arrays_and_files_have_the_same_folds(tmp_path):
    path = written(tmp_path)
    frame = pd.read_csv(path)
    table = read_table(path, target="price", group_column="street", fold="2/3")
    arrays = table_from_arrays(
        frame[["size"]], frame["price"], group=frame["street"], names=frame.index + 2, fold="2/3"
    )
    assert (table.split == arrays.split).all()


def test_a_source_keeps_its_fold(tmp_path):
    source = DataSource(str(written(tmp_path)), target=("price",), fold="3/4")
    again = DataSource.from_json(source.to_json())
    assert again.fold == "3/4"
    assert (again.read(224).split == source.read(224).split).all()
    assert "fold" not in DataSource("houses.csv").to_json()  # older versions do not know it


def test_other_ways_to_split_are_refused_beside_a_fold(tmp_path):
    path = written(tmp_path, split=["train", "val", "test"] * 20)
    with pytest.raises(
        DataError, match=r"split_seed and folds are for a random split, .*'split' already gives"
    ):
        read_table(path, target="price", fold="1/3")
    assert len(read_table(path, target="price", fold="1/3", split_column="none").rows("test")) == 20
    with pytest.raises(DataError, match=r"fold 1/3 and fractions \(0.6, 0.2, 0.2\) both set"):
        read_table(written(tmp_path), target="price", fold="1/3", fractions=(0.6, 0.2, 0.2))


def test_rows_known_in_part_never_share_a_group_with_rows_that_are_tested(tmp_path):
    prices = [str(price) for price in range(60)]
    prices[::4] = [">30"] * 15
    path = written(tmp_path, price=prices)
    for fold in all_folds(3):
        table = read_table(
            path, target="price", group_column="street", fold=fold, partial_labels=True
        )
        kept = set(table.group[table.rows(PARTIAL)])
        assert kept
        assert not kept & set(table.group[np.isin(table.split, ("val", "test"))])
        assert len(kept) + sum("not exact" in row.reason for row in table.skipped) == 15


def test_calibration_rows_come_from_the_training_rows_of_a_fold(tmp_path):
    path = written(tmp_path)
    plain = read_table(path, target="price", fold="1/3")
    table = read_table(path, target="price", fold="1/3", calibration_share=0.25)
    assert (table.rows("test") == plain.rows("test")).all()
    assert set(table.rows("calibration")) < set(plain.rows("train"))
