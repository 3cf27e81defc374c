"""Tables from files and arrays, and what is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from data_cases import csv_of, npz_of, write
from rnc.data import DataError, read_table, table_from_arrays
from rnc.data.splits import SPLITS


def photos(tmp_path, n=20, **columns):
    (tmp_path / "photos").mkdir(exist_ok=True)
    names = [f"{i:02d}.png" for i in range(n)]
    for i, name in enumerate(names):
        Image.new("RGB", (12, 12), (10 * i, 0, 0)).save(tmp_path / "photos" / name)
    frame = pd.DataFrame({"who": "someone", "pic": names, "age": np.arange(n), **columns})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def counts(table):
    return [len(table.rows(name)) for name in SPLITS]


# ------------------------------------------------------------------------------------------ tables


def test_csv_becomes_a_table_with_seeded_split_and_features(tmp_path):
    table = read_table(csv_of(tmp_path, city=["Oslo", "Rome"] * 20), target="age")
    assert table.kind == "table"
    assert table.x.shape == (40, 3)
    assert table.x.dtype == np.float32
    assert table.y.dtype == np.float64
    assert table.y[:, 0].tolist() == [i % 17 for i in range(40)]
    assert table.target_names == ("age",)
    assert counts(table) == [28, 4, 8]
    assert table.names[0] == "2"  # as in a spreadsheet
    assert len(table) == 40
    train = table.x[table.rows("train"), 0]
    assert abs(train.mean()) < 1e-6
    assert abs(train.std() - 1) < 1e-6
    assert json.loads(json.dumps(table.preprocessing)) == table.preprocessing


def test_several_targets_keep_their_order(tmp_path):
    table = read_table(csv_of(tmp_path, b=np.arange(40.0) ** 2), target=["b", "age"])
    assert table.target_names == ("b", "age")
    assert table.y[3].tolist() == [9, 3]
    assert [c["name"] for c in table.preprocessing["columns"]] == ["a"]


def test_rows_that_belong_together_are_known_of_rows_that_are_left(tmp_path):
    person = np.arange(40) // 2
    path = csv_of(tmp_path, person=person, b=[None, *range(39)])
    table = read_table(path, target="b", group_column="person", drop_missing=True)
    assert table.group.tolist() == person[1:].tolist()
    assert read_table(path, target="age").group is None
    photo = photos(tmp_path, person=person[:20])
    (tmp_path / "photos" / "04.png").write_text("no picture")
    options = {"images": tmp_path / "photos", "target": "age", "group_column": "person"}
    table = read_table(photo, **options, skip_bad=True)
    assert table.group.tolist() == np.delete(person[:20], 4).tolist()


def test_targets_split_and_group_are_no_features(tmp_path):
    path = csv_of(
        tmp_path,
        person=np.arange(40) // 2,
        split=["train", "train", "val", "test"] * 10,
        other_split=["train", "test", "val", "train"] * 10,
        group=np.arange(40) % 3,
    )
    table = read_table(path, target="age", group_column="person", split_column="none")
    assert [c["name"] for c in table.preprocessing["columns"]] == ["a", "group"]
    people = [set((table.rows(name) // 2).tolist()) for name in SPLITS]
    assert not people[0] & people[1] | people[0] & people[2] | people[1] & people[2]


def test_column_named_split_is_taken_unless_told_otherwise(tmp_path):
    path = csv_of(tmp_path, split=["train", "valid"] * 10 + ["test"] * 20)
    assert counts(read_table(path, target="age")) == [10, 10, 20]
    assert counts(read_table(path, target="age", split_column="none")) == [28, 4, 8]


def test_columns_that_are_only_called_split_or_group_are_features(tmp_path):
    path = csv_of(tmp_path, split=np.arange(40) % 7, group=np.arange(40) % 2)
    table = read_table(path, target="age")
    assert [c["name"] for c in table.preprocessing["columns"]] == ["a", "split", "group"]
    assert counts(table) == [28, 4, 8]


def test_named_split_column_is_taken(tmp_path):
    path = csv_of(tmp_path, fold=["dev", "train"] * 10 + ["test"] * 20)
    table = read_table(path, target="age", split_column="fold")
    assert counts(table) == [10, 10, 20]
    assert table.split[:2].tolist() == ["val", "train"]


def test_feature_columns_choose_and_order(tmp_path):
    path = csv_of(tmp_path, b=np.arange(40) % 3, c=np.arange(40) % 5)
    table = read_table(path, target="age", feature_columns=["c", "a"])
    assert [c["name"] for c in table.preprocessing["columns"]] == ["c", "a"]


def test_subgroup_columns_are_kept_and_stay_features(tmp_path):
    path = csv_of(tmp_path, sex=["f", None] * 20)
    table = read_table(path, target="age", subgroup_columns=["sex", "a"])
    assert table.subgroup["sex"][:2].tolist() == ["f", "missing"]
    assert table.subgroup["a"].tolist() == (np.arange(40) * 0.5).tolist()
    assert [c["name"] for c in table.preprocessing["columns"]] == ["a", "sex"]


def test_seed_and_fractions_reach_the_split(tmp_path):
    path = csv_of(tmp_path)
    one, other = (read_table(path, target="age", split_seed=seed) for seed in (0, 1))
    assert (one.split != other.split).any()
    assert counts(read_table(path, target="age", fractions=(0.5, 0.25, 0.25))) == [20, 10, 10]


@pytest.mark.parametrize("separator", [",", ";", "\t", ", "])
def test_separators_marks_and_gaps_of_csv_files_are_understood(tmp_path, separator):
    rows = ["\ufeffage,a,b", *(f"{i},{i}.5,{'?' if i == 3 else i % 4}" for i in range(20))]
    path = write(tmp_path / "t.csv", "\r\n".join(rows).replace(",", separator) + "\r\n")
    table = read_table(path, target="age")
    assert table.y[:, 0].tolist() == list(range(20))
    assert [c["gaps"] for c in table.preprocessing["columns"]] == [False, table.split[3] == "train"]


def test_parquet_is_read_like_csv(tmp_path):
    path = csv_of(tmp_path)
    frame = pd.read_csv(path)
    frame.set_index(pd.Index(frame["a"], name="other")).to_parquet(tmp_path / "t.parquet")
    table, same = read_table(tmp_path / "t.parquet", target="age"), read_table(path, target="age")
    assert (table.y == same.y).all()
    assert table.names[0] == "0"  # as in pandas


def test_parquet_file_is_read(tmp_path):
    pytest.importorskip("pyarrow")
    path = csv_of(tmp_path)
    pd.read_csv(path).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", target="age").y.shape == (40, 1)


# ------------------------------------------------------------------------------------------ images


def test_csv_with_images_becomes_uint8_pixels(tmp_path):
    table = read_table(photos(tmp_path), target="age", images=tmp_path / "photos", image_size=8)
    assert table.kind == "image"
    assert table.x.shape == (20, 3, 8, 8)
    assert table.x.dtype == np.uint8
    assert table.x[:, 0, 4, 4].tolist() == [10 * i for i in range(20)]
    assert table.names[:2].tolist() == ["00.png", "01.png"]
    assert table.preprocessing == {"channels": 3, "fit": "crop", "side": 8}
    assert counts(table) == [14, 2, 4]


def test_image_column_without_folder_looks_beside_the_table(tmp_path):
    path = photos(tmp_path)
    frame = pd.read_csv(path)
    frame["pic"] = "photos/" + frame["pic"]
    frame.to_csv(path, index=False)
    table = read_table(path, target="age", image_column="pic", image_size=8)
    assert len(table) == 20


def test_image_column_is_found_by_its_name_where_values_have_no_suffix(tmp_path):
    path = photos(tmp_path)
    for file in (tmp_path / "photos").iterdir():
        file.rename(file.with_suffix(""))
    frame = pd.read_csv(path).rename(columns={"pic": "File"})
    frame["File"] = [f"{i:02d}" for i in range(20)]
    frame.to_csv(path, index=False)
    with pytest.raises(DataError, match="no such file"):  # read as the numbers 0, 1, 2, ...
        read_table(path, target="age", images=tmp_path / "photos", image_size=8)
    frame["File"] = [f"./{i:02d}" for i in range(20)]
    frame.to_csv(path, index=False)
    table = read_table(path, target="age", images=tmp_path / "photos", image_size=8)
    assert table.x[3, 0, 0, 0] == 30


def test_order_of_the_rows_does_not_change_the_split_of_images(tmp_path):
    path = photos(tmp_path)
    first = read_table(path, target="age", images=tmp_path / "photos", image_size=8)
    pd.read_csv(path).iloc[::-1].to_csv(path, index=False)
    turned = read_table(path, target="age", images=tmp_path / "photos", image_size=8)
    assert (turned.names == first.names[::-1]).all()
    assert (turned.split == first.split[::-1]).all()


def test_cache_is_used_for_the_same_table_and_folder(tmp_path):
    path, cache = photos(tmp_path), tmp_path / "cache"
    for _ in range(2):
        table = read_table(
            path, target="age", images=tmp_path / "photos", image_size=8, cache=cache
        )
        assert isinstance(table.x, np.memmap)
        assert len(list(cache.glob("t-8-*.npy"))) == 1
    read_table(path, target="age", images=tmp_path / "photos", image_size=9, cache=cache)
    assert len(list(cache.glob("*.npy"))) == 2


@pytest.mark.parametrize("cache", [None, "cache"])
def test_pictures_in_train_and_test_are_counted(tmp_path, cache):
    split = ["train"] * 12 + ["val"] * 3 + ["test"] * 5
    path = photos(tmp_path, split=split)
    folder = tmp_path / "photos"
    options = {"target": "age", "images": folder, "image_size": 8}
    options |= {"cache": None if cache is None else tmp_path / cache}
    assert read_table(path, **options).notes == ()
    shutil.copy(folder / "03.png", folder / "17.png")  # the same content
    shutil.copy(folder / "01.png", folder / "02.png")  # both to train on
    frame = pd.read_csv(path)
    frame.loc[18, "pic"] = "./00.png"  # the same file
    frame.loc[19, "pic"] = "00.png"
    frame.to_csv(path, index=False)
    for _ in range(2):
        (note,) = read_table(path, **options).notes
        assert note.startswith(
            "2 pictures in 5 rows are in more than one of train, val and test, such as "
            "./00.png (test) and 00.png (train): the same file, or one with the same content."
        )
        assert "--group-column" in note


def test_bad_images_are_listed_with_rows_and_reasons(tmp_path):
    path = photos(tmp_path)
    for i in range(12):
        (tmp_path / "photos" / f"{i:02d}.png").unlink()
    (tmp_path / "photos" / "00.png").write_text("no picture")
    with pytest.raises(DataError) as caught:
        read_table(path, target="age", images=tmp_path / "photos", image_size=8)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: 12 of 20 images cannot be used:"
    assert lines[1] == f"  row 2: {tmp_path / 'photos' / '00.png'}: not an image"
    assert lines[10] == f"  row 11: {tmp_path / 'photos' / '09.png'}: no such file"
    assert lines[11] == "  ..."
    assert lines[12].endswith("leave them out with --skip-bad (skip_bad=True).")


def test_skipped_images_leave_every_field_aligned_and_are_told(tmp_path):
    path = photos(tmp_path, shift=np.arange(20) + 100)
    frame = pd.read_csv(path)
    frame.loc[4, "pic"] = None
    frame.loc[7, "age"] = None
    frame.to_csv(path, index=False)
    (tmp_path / "photos" / "02.png").unlink()
    arguments = {"target": "age", "images": tmp_path / "photos", "image_size": 8}
    asked = {"skip_bad": True, "drop_missing": True, "subgroup_columns": ["shift"]}
    table = read_table(path, **arguments, **asked)
    kept = [i for i in range(20) if i not in (2, 4, 7)]
    assert table.y[:, 0].tolist() == kept
    assert table.x[:, 0, 0, 0].tolist() == [10 * i for i in kept]
    assert table.names.tolist() == [f"{i:02d}.png" for i in kept]
    assert table.subgroup["shift"].tolist() == [100 + i for i in kept]
    assert len(table.split) == 17
    reasons = [("9", "age is missing"), ("02.png", "no such file"), ("", "no file name")]
    assert list(table.skipped) == reasons


def test_skipping_a_whole_split_is_refused(tmp_path):
    path = photos(tmp_path, split=["val"] + ["train"] * 10 + ["test"] * 9)
    (tmp_path / "photos" / "00.png").unlink()
    with pytest.raises(DataError, match=r"without the 1 bad images: split has no rows for val"):
        read_table(path, target="age", images=tmp_path / "photos", image_size=8, skip_bad=True)


def test_wrong_image_folder_is_told_even_when_bad_images_may_be_skipped(tmp_path):
    path = photos(tmp_path)
    with pytest.raises(DataError, match=r"20 of 20 images[\s\S]*No usable rows remain\. --images"):
        read_table(path, target="age", images=tmp_path, image_size=8, skip_bad=True)
    with pytest.raises(DataError, match=r"image folder .*nowhere does not exist\. Give the folder"):
        read_table(path, target="age", images=tmp_path / "nowhere")


def test_table_without_file_names_lists_its_columns(tmp_path):
    message = r"no column of image file names; its columns: age, a\. Name it with --image-column"
    with pytest.raises(DataError, match=message):
        read_table(csv_of(tmp_path), target="age", images=tmp_path)


def test_file_names_without_a_folder_ask_for_it(tmp_path):
    path = csv_of(tmp_path, pic=[f"{i}.jpg" for i in range(40)])
    with pytest.raises(
        DataError, match=r"'pic' holds names of image files\. .*--exclude-column \("
    ):
        read_table(path, target="age")


# ------------------------------------------------------------------------------------------ arrays


def test_npz_signals_use_their_own_group_and_split(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 2, 50))
    split = np.array(["train", "val", "test"]).repeat(10)
    path = npz_of(tmp_path, x=x, y=np.arange(30), group=np.arange(30) // 2, split=split)
    table = read_table(path)
    assert table.kind == "signal"
    assert table.x.dtype == np.float32
    assert np.allclose(table.x, x)
    assert counts(table) == [10, 10, 10]
    assert table.target_names == ("y",)
    assert table.preprocessing == {"channels": 2}
    torn = npz_of(tmp_path, x=x, y=np.arange(30), group=np.arange(30) // 20, split=split)
    message = r"1 of 2 values of group are in more than one split: 0 \(row 0 train, row 10 val\)"
    with pytest.raises(DataError, match=message):
        read_table(torn)


def test_npz_targets_are_chosen_by_name(tmp_path):
    x, y = np.zeros((20, 1, 5)), np.arange(40.0).reshape(20, 2)
    path = npz_of(tmp_path, x=x, y=y, rate=np.arange(20) * 3)
    assert read_table(path).target_names == ("y0", "y1")
    assert read_table(path, target="y1").y[:, 0].tolist() == y[:, 1].tolist()
    assert read_table(path, target=["rate", "y0"]).y[2].tolist() == [6, 4]
    named = npz_of(tmp_path, x=x, y=y, target_names=np.array(["pan", "tilt"]))
    assert read_table(named, target="tilt").y[:, 0].tolist() == y[:, 1].tolist()
    with pytest.raises(DataError, match=r"no column 'pam'; its columns: pan, tilt\. Did you mean"):
        read_table(named, target="pam")


def test_npz_images_and_tables_are_told_by_their_shape(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 6, 7))
    table = read_table(npz_of(tmp_path, x=pixels, y=np.arange(20)))
    assert (table.kind, table.x.dtype) == ("image", np.uint8)
    assert table.preprocessing == {"channels": 3, "shape": [6, 7]}
    assert (table.x == pixels).all()
    columns = np.random.default_rng(0).normal(size=(20, 2))
    columns[3, 1] = np.nan
    split = ["train"] * 10 + ["val"] * 5 + ["test"] * 5
    names = np.array([b"width", b"height"])
    path = npz_of(tmp_path, x=columns, y=np.arange(20), split=split, feature_names=names)
    table = read_table(path)
    assert (table.kind, table.x.shape) == ("table", (20, 3))
    assert [c["name"] for c in table.preprocessing["columns"]] == ["width", "height"]


def test_arrays_and_dataframes_become_tables():
    frame = pd.DataFrame({"a": np.arange(30.0), 1: list("xyz") * 10}, index=range(100, 130))
    y = pd.DataFrame({"pan": np.arange(30), "tilt": -np.arange(30)}, index=range(100, 130))
    names = [f"p{i}" for i in range(30)]
    table = table_from_arrays(frame, y, names=names, subgroup={"third": np.arange(30) % 3})
    assert table.x.shape == (30, 4)
    assert table.target_names == ("pan", "tilt")
    assert table.names[-1] == "p29"
    assert table.subgroup["third"][5] == 2
    assert counts(table_from_arrays(np.ones((10, 1, 4)), range(10), fractions=(0.8, 0.2, 0))) == [
        8,
        2,
        0,
    ]


def test_given_arrays_of_split_and_group_are_used_and_checked():
    x, y = np.zeros((6, 1, 4)), np.arange(6)
    split = ["train", "train", "val", "val", "test", "test"]
    table = table_from_arrays(x, y, split=split, group=[0, 0, 1, 1, 2, 2])
    assert table.split.tolist() == split
    with pytest.raises(
        DataError, match=r"group are in more than one split: 0 \(row 1 train, row 2"
    ):
        table_from_arrays(x, y, split=split, group=[1, 0, 0, 2, 3, 3])


# ----------------------------------------------------------------------------- a model that exists


def test_fitted_preprocessing_is_reused_and_all_rows_are_test(tmp_path):
    fitted = read_table(csv_of(tmp_path, city=["1", "b"] * 20), target="age").preprocessing
    new = write(tmp_path / "new.csv", "city,a,age,split\n1,3,9,train\n2,,9,train\n")
    table = read_table(new, target="age", preprocessing=json.loads(json.dumps(fitted)))
    assert table.split.tolist() == ["test", "test"]
    assert table.preprocessing == fitted
    (a,) = (c for c in fitted["columns"] if c["name"] == "a")
    assert table.x[0, 0] == np.float32((3 - a["mean"]) / a["scale"])
    assert table.x[:, 1:].tolist() == [[1, 0], [0, 0]]
    asked = read_table(new, target="age", preprocessing=fitted, split_column="split")
    assert asked.split.tolist() == ["train", "train"]


def test_fitted_image_model_reads_a_table_of_images(tmp_path):
    path = photos(tmp_path)
    path = path.rename(tmp_path / "photos" / "t.csv")
    table = read_table(path, target="age", image_size=8, preprocessing={})
    assert (table.kind, table.x.shape) == ("image", (20, 3, 8, 8))
    grey = read_table(path, target="age", image_size=8, preprocessing={"channels": 1})
    assert grey.x.shape == (20, 1, 8, 8)
    with pytest.raises(
        DataError, match=r"trained on the columns of a table, not on images\. Leave"
    ):
        read_table(path, target="age", images=tmp_path, preprocessing={"columns": []})
