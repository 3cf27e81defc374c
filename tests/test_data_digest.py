"""The digest of a table: the same for the same data, whenever and wherever they are read."""

import dataclasses

import numpy as np

from rnc.data import table_from_arrays

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
    y, split, x, names = TABLE.y.copy(), TABLE.split.copy(), TABLE.x.copy(), TABLE.names.copy()
    y[3] += 1
    split[TABLE.rows("train")[0]] = "test"
    x[0] += 1
    names[4] = "x"
    site = {"site": np.arange(20) % 3}
    changes = {"y": y, "split": split, "x": x, "names": names, "subgroup": site}
    for field, value in {**changes, "target_names": ("z",)}.items():
        assert dataclasses.replace(TABLE, **{field: value}).digest != TABLE.digest
