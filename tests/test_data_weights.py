"""Weights of rows: where they come from, that they are no features, and which are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rnc.data.errors import DataError
from rnc.data.fingerprint import check_fingerprint
from rnc.data.source import DataSource
from rnc.data.table import read_table, table_from_arrays


def frame(n: int = 40, **columns: Any) -> pd.DataFrame:
    x = np.random.default_rng(0).normal(size=(n, 2))
    given = {"a": x[:, 0], "b": x[:, 1], "price": 3 * x[:, 0], "w": np.arange(n) + 0.5}
    return pd.DataFrame(given | columns)


def test_a_weight_column_weighs_and_is_no_feature() -> None:
    table = read_table(frame(), target="price", weight_column="w")
    assert table.weight is not None
    assert table.weight.tolist() == (np.arange(40) + 0.5).tolist()
    assert [column["name"] for column in table.preprocessing["columns"]] == ["a", "b"]
    with pytest.raises(DataError, match="w"):
        read_table(frame(), target="price", weight_column="w", feature_columns=["a", "w"])


def test_weights_of_dropped_rows_go_with_them() -> None:
    data = frame()
    data.loc[3, ["price", "w"]] = np.nan
    table = read_table(data, target="price", weight_column="w", drop_missing=True)
    assert table.weight is not None
    assert table.weight.tolist() == [i + 0.5 for i in range(40) if i != 3]


def test_an_archive_has_them_by_name_unless_they_are_something_else(tmp_path: Path) -> None:
    x, y, w = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0), np.arange(30) + 1.0
    np.savez(tmp_path / "d.npz", x=x, y=y, weight=w)
    table = read_table(tmp_path / "d.npz")
    assert table.weight is not None
    assert table.weight.tolist() == w.tolist()
    assert table.notes == ()
    assert read_table(tmp_path / "d.npz", target="weight").weight is None
    assert read_table(tmp_path / "d.npz", subgroup_columns=["weight"]).weight is None
    np.savez(tmp_path / "short.npz", x=x, y=y, weight=w[:-1])
    with pytest.raises(DataError, match=r"30 rows and weight is \(29,\); it must be \(30,\)"):
        read_table(tmp_path / "short.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({4: -2.0, 9: -1.0}, r"row 4: w is -2, expected a weight of 0 or more\. 1 more"),
        ({7: np.nan}, r"w is missing in 1 of 40 rows \(rows 7\).*Fill it in"),
        ({7: np.inf}, r"row 7: w is inf, expected a finite number"),
        (dict.fromkeys(range(40), 0.0), r"w is zero in all (train|val|test) rows"),
    ],
    ids=["negative", "missing", "infinite", "nothing"],
)
def test_weights_that_are_none_are_refused(change: dict[int, float], message: str) -> None:
    data = frame()
    for row, value in change.items():
        data.loc[row, "w"] = value
    with pytest.raises(DataError, match=message):
        read_table(data, target="price", weight_column="w")


def test_text_and_other_uses_of_the_column_are_refused() -> None:
    with pytest.raises(DataError, match=r"row 0: w is 'much', expected a number"):
        read_table(frame(w=["much"] * 40), target="price", weight_column="w")
    with pytest.raises(DataError, match="'w' cannot be a target and the weight column"):
        read_table(frame(), target="w", weight_column="w")
    with pytest.raises(DataError, match="'w' cannot be the weight and the split or group"):
        read_table(frame(), target="price", weight_column="w", group_column="w")
    with pytest.raises(DataError, match="size"):
        read_table(frame(), target="price", weight_column="size")


def test_a_split_that_weighs_nothing_is_named() -> None:
    split = np.array(["train"] * 30 + ["val"] * 5 + ["test"] * 5)
    w = np.where(split == "val", 0.0, 1.0)
    with pytest.raises(DataError, match=r"w is zero in all val rows \(5\)"):
        read_table(frame(split=split, w=w), target="price", weight_column="w")
    rest = frame(w=np.zeros(40))
    fitted = read_table(frame(), target="price", weight_column="w")
    with pytest.raises(DataError, match=r"w is zero in all rows \(40\)"):
        read_table(rest, target="price", weight_column="w", preprocessing=fitted.preprocessing)


def test_arrays_of_another_length_are_refused() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    with pytest.raises(DataError, match="x has 30 rows and weight has 29"):
        table_from_arrays(x, y, weight=np.ones(29))


def test_weights_are_part_of_what_the_data_are() -> None:
    plain, weighted = (read_table(frame(), target="price", weight_column=w) for w in (None, "w"))
    left_out = read_table(frame(), target="price", exclude_columns=["w"])
    other = read_table(frame(w=np.arange(40) + 1.0), target="price", weight_column="w")
    assert "weights" not in plain.fingerprint
    assert len({table.digest for table in (left_out, weighted, other)}) == 3
    check_fingerprint(weighted.fingerprint, weighted, "the run", "Start again.")
    for before, now in ((weighted, other), (weighted, left_out), (left_out, weighted)):
        with pytest.raises(DataError, match=r"other weights\. Start again"):
            check_fingerprint(before.fingerprint, now, "the run", "Start again.")


def test_a_source_keeps_the_column(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "d.csv", index=False)
    source = DataSource(str(tmp_path / "d.csv"), target=("price",), weight_column="w")
    again = DataSource.from_json(source.to_json())
    weight = again.read(224).weight
    assert weight is not None
    assert weight.sum() == 800
