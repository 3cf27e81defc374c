"""The digest of a table: the same for the same data, whenever and wherever they are read."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from rnc.data import fingerprint, read_table, table_from_arrays
from rnc.data.errors import DataError
from rnc.data.fingerprint import check_fingerprint, fingerprint_of
from rnc.data.names import NumberedRows

TABLE = table_from_arrays(
    np.arange(60.0).reshape(20, 3), np.arange(20), subgroup={"site": np.arange(20) % 2}
)


def test_equal_tables_have_equal_digests():
    assert dataclasses.replace(TABLE, x=TABLE.x.copy()).digest == TABLE.digest


def test_the_digest_stays_the_one_that_names_old_run_folders():
    assert TABLE.digest == "184ba2c10b2963784e444404ad61bb2f"


def test_groups_do_not_change_the_digest():
    assert dataclasses.replace(TABLE, group=np.arange(20) % 4).digest == TABLE.digest


def test_another_target_split_input_name_or_subgroup_is_another_table():
    y, split, x, names = TABLE.y.copy(), TABLE.split.copy(), TABLE.x.copy(), np.array(TABLE.names)
    y[3] += 1
    split[TABLE.rows("train")[0]] = "test"
    x[0] += 1
    names[4] = "x"
    site = {"site": np.arange(20) % 3}
    changes = {"y": y, "split": split, "x": x, "names": names, "subgroup": site}
    for field, value in {**changes, "target_names": ("z",)}.items():
        assert dataclasses.replace(TABLE, **{field: value}).digest != TABLE.digest


def test_the_fingerprint_sees_every_input_where_the_digest_sees_some():
    rows = 1000
    table = table_from_arrays(np.arange(3.0 * rows).reshape(rows, 3), np.arange(rows))
    x = table.x.copy()
    x[5, 1] = np.nextafter(x[5, 1], np.float32(9))
    changed = dataclasses.replace(table, x=x)
    assert changed.digest == table.digest
    assert changed.fingerprint["inputs"] != table.fingerprint["inputs"]
    assert {**changed.fingerprint, "inputs": ""} == {**table.fingerprint, "inputs": ""}


def test_the_fingerprint_sees_other_categories_of_the_same_numbers():
    rows = pd.DataFrame({"town": ["Rome", "Oslo"] * 10, "x": range(20), "y": range(20)})
    renamed = rows.replace({"town": {"Rome": "Roma"}})
    one, other = (read_table(frame, target="y") for frame in (rows, renamed))
    assert (one.x == other.x).all()
    with pytest.raises(DataError, match="other inputs"):
        check_fingerprint(one.fingerprint, other, "run", "Do.")


def test_the_fingerprint_names_the_part_that_changed():
    split, site = TABLE.split.copy(), {"site": np.arange(20) % 3}
    split[TABLE.rows("train")[0]] = "test"
    changes = {
        "inputs": {"x": TABLE.x + 1},
        "targets": {"y": TABLE.y + 1},
        "names": {"names": TABLE.names[::-1]},
        "split": {"split": split},
        "subgroups": {"subgroup": site},
    }
    for part, change in changes.items():
        now = dataclasses.replace(TABLE, **change)
        with pytest.raises(DataError, match=rf"The data of run have changed .*: other {part}\. Do"):
            check_fingerprint(TABLE.fingerprint, now, "run", "Do.")
    check_fingerprint(TABLE.fingerprint, dataclasses.replace(TABLE), "run", "Do.")
    check_fingerprint(None, TABLE, "run", "Do.")


def test_numbers_of_rows_are_hashed_as_their_texts(monkeypatch):
    texts = dataclasses.replace(TABLE, names=np.arange(20).astype(str))
    assert isinstance(TABLE.names, NumberedRows)
    assert (texts.digest, texts.fingerprint) == (TABLE.digest, TABLE.fingerprint)
    monkeypatch.setattr(fingerprint, "_BLOCK", 200)  # two names of 84 bytes
    assert fingerprint_of(texts)["names"] == fingerprint_of(TABLE)["names"]
    assert (TABLE.names == texts.names).all()
    assert list(TABLE.names) == TABLE.names.tolist() == texts.names.tolist()


def test_the_fingerprint_counts_rows():
    fewer = table_from_arrays(np.arange(57.0).reshape(19, 3), np.arange(19))
    with pytest.raises(DataError, match=r"\(20 rows then, 19 now\)"):
        check_fingerprint(TABLE.fingerprint, fewer, "run", "Do.")


def test_the_fingerprint_does_not_depend_on_how_an_array_lies_in_memory():
    turned = np.asfortranarray(TABLE.x)
    assert dataclasses.replace(TABLE, x=turned).fingerprint == TABLE.fingerprint
    assert (
        TABLE.fingerprint["inputs"] == "9e598487725e85e1eb8c951df6261baf"
    )  # stored in run folders


def test_large_inputs_are_hashed_in_blocks(monkeypatch):
    whole = TABLE.fingerprint["inputs"]
    monkeypatch.setattr(fingerprint, "_BLOCK", 40)
    parts = fingerprint_of(TABLE)["inputs"]
    x = TABLE.x.copy()
    x[-1, -1] += 1
    assert len({whole, parts, fingerprint_of(dataclasses.replace(TABLE, x=x))["inputs"]}) == 3
