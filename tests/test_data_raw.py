"""Raw data of every form, and what is refused, without training."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from rnc.data import DataError, read_inputs, table_from_arrays
from rnc.data.images import decode
from rnc.data.raw import expand

FILES = {"channels": 3, "fit": "crop", "side": 8}
ARRAYS = {"channels": 3, "shape": [6, 9]}


@pytest.fixture
def photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def pixels_of(file):
    with Image.open(file) as picture:
        return np.asarray(picture)


# ------------------------------------------------------------------------------------- images


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_in_memory_is_seen_as_its_file(photo, fit, channels):
    preprocessing = {"channels": channels, "fit": fit, "side": 8}
    expected = decode(photo, 8, channels, fit)
    values = pixels_of(photo)
    forms = [photo, str(photo), [photo], [Image.fromarray(values)], Image.fromarray(values)]
    forms += [[values], [values.transpose(2, 0, 1)], values, values.transpose(2, 0, 1)[None]]
    for form in forms:
        assert (read_inputs(form, preprocessing, "image").x == expected[None]).all()


def test_a_picture_is_turned_as_its_file_and_keeps_its_grey(tmp_path):
    picture = Image.fromarray(np.arange(200, dtype=np.uint8).reshape(10, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as opened:
        opened.load()
        inputs = read_inputs([opened, picture], FILES, "image")
    assert (inputs.x[0] == decode(tmp_path / "turned.png", 8)).all()
    assert (inputs.x[0] != inputs.x[1]).any()
    assert (inputs.x[1][0] == inputs.x[1][1]).all()
    grey = read_inputs([np.asarray(picture)], FILES, "image")
    assert (grey.x == inputs.x[1:]).all()


def test_a_large_jpeg_that_is_not_yet_read_is_decoded_as_its_file(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "large.jpg")
    with Image.open(tmp_path / "large.jpg") as picture:
        inputs = read_inputs(picture, FILES, "image")
        assert picture.size == (400, 300)  # the caller's picture stays as it is
    assert (inputs.x[0] == decode(tmp_path / "large.jpg", 8)).all()


def test_a_model_of_arrays_takes_pictures_of_their_size_only(photo, tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    Image.fromarray(values).save(tmp_path / "fits.png")
    planes = values.transpose(2, 0, 1)
    for form in (tmp_path / "fits.png", Image.fromarray(values), [values], planes, planes[None]):
        assert (read_inputs(form, ARRAYS, "image").x == planes).all()
    message = (
        r"arrays of 6 x 9 pixels \(height x width\); got 30 x 40\. Resize or cut them to 6 x 9"
    )
    for form in (photo, [pixels_of(photo)], pixels_of(photo).transpose(2, 0, 1)[None]):
        with pytest.raises(DataError, match=message):
            read_inputs(form, ARRAYS, "image")
    both = read_inputs([tmp_path / "fits.png", photo], ARRAYS, "image", skip_bad=True)
    assert (len(both.x), both.skipped[0].name) == (1, str(photo))
    with pytest.raises(DataError, match="arrays of 5 channels, which a picture does not have"):
        read_inputs(Image.new("RGB", (9, 6)), {"channels": 5, "shape": [6, 9]}, "image")


def test_files_folders_tables_and_patterns_come_in_the_order_given(photo, tmp_path):
    (tmp_path / "more").mkdir()
    for i in (1, 2):
        Image.new("RGB", (9, 9), (i, 0, 0)).save(tmp_path / "more" / f"{i}.png")
    (tmp_path / "t.csv").write_text("file,id\nmore/2.png,007\n")
    sources = [tmp_path / "more", tmp_path / "t.csv", str(tmp_path / "m*" / "[12].png")]
    inputs = read_inputs(sources, FILES, "image")
    assert inputs.x[:, 0, 0, 0].tolist() == [1, 2, 2, 1, 2]
    one, two = (str(tmp_path / "more" / f"{i}.png") for i in (1, 2))
    assert inputs.names.tolist() == [one, two, "more/2.png", one, two]
    assert inputs.columns["id"].fillna("").tolist() == ["", "", "007", "", ""]


def test_a_name_that_is_there_is_no_pattern(tmp_path):
    (tmp_path / "a[1].png").write_text("")
    assert expand(tmp_path / "a[1].png") == [tmp_path / "a[1].png"]
    with pytest.raises(DataError, match=r"b\*\.png: no file has a name like this"):
        expand(str(tmp_path / "b*.png"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((2, 3, 8, 8)), r"whole numbers from 0 to 255; got float64"),
        ([np.zeros((8, 8, 3)) + 0.5], r"picture 0: x must hold images as whole numbers"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"looks like \(n, h, w, c\)\. Use x\.transpose"),
        (np.zeros((5, 8, 8), np.uint8), r"got an array \(5, 8, 8\); one channel is x\[:, None\]"),
        (np.zeros((8, 8), np.uint8), r"trained on data of kind 'image'; x is \(8, 8\)"),
        ([np.zeros((3, 8, 3), np.uint8)], r"picture 0 is \(3, 8, 3\): which side are the chan"),
        ([np.zeros((5, 8, 7), np.uint8)], r"1 \(grey\), 3 \(RGB\) or 4 \(RGBA\) channels; got 5"),
        (["a.png", Image.new("L", (3, 3))], r"kind 'image': it needs image files, a folder, pic"),
        (3.5, r"kind 'image': it needs image files.*; got 3\.5\."),
        ([], "nothing to predict: the list is empty"),
        (pd.DataFrame({"age": [3]}), "has no column of image file names; its columns: age"),
    ],
)
def test_what_is_no_picture_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        read_inputs(data, FILES, "image")


# ------------------------------------------------------------------------------------- tables


def homes():
    return pd.DataFrame(
        {
            "area": [50.0, 80.0, np.nan, 60.0] * 8,
            "code": ["01", "7", "x", None] * 8,
            "id": [f"{i:03d}" for i in range(32)],
        }
    )


@pytest.fixture
def fitted():
    return table_from_arrays(homes()[["area", "code"]], np.arange(32.0))


def test_rows_of_every_form_are_prepared_as_in_training(fitted, tmp_path):
    rows = homes()[["area", "code"]]
    saved = json.loads(json.dumps(fitted.preprocessing))
    homes().to_parquet(tmp_path / "t.parquet")
    forms = [homes(), rows[["code", "area"]], rows.to_numpy(), rows.to_numpy().tolist()]
    forms += [rows.to_dict("records"), tmp_path / "t.parquet"]
    forms += [pa.Table.from_pandas(homes()[["id", "code", "area"]])]
    for form in forms:
        assert (read_inputs(form, saved, "table").x == fitted.x).all()
    assert (read_inputs(rows.iloc[1].to_dict(), saved, "table").x == fitted.x[1]).all()


def test_columns_without_a_use_pass_as_they_are_written(fitted, tmp_path):
    homes().to_csv(tmp_path / "t.csv", index=False)
    inputs = read_inputs(tmp_path / "t.csv", fitted.preprocessing, "table")
    assert list(inputs.columns) == ["id"]
    assert inputs.columns["id"].tolist() == homes()["id"].tolist()
    twice = read_inputs([tmp_path / "t.csv"] * 2, fitted.preprocessing, "table")
    assert twice.names[[0, 33]].tolist() == [f"{tmp_path}/t.csv:2", f"{tmp_path}/t.csv:3"]
    assert (twice.x == np.tile(fitted.x, (2, 1))).all()


def test_numbers_are_the_categories_that_they_were(fitted):
    """As pandas reads a CSV in which no other text is left."""
    frame = pd.DataFrame({"area": [50.0, 80.0, 60.0], "code": [1, 7, np.nan]})
    inputs = read_inputs(frame, fitted.preprocessing, "table")
    assert (inputs.x == fitted.x[[0, 1, 3]]).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((4, 3)), r"on 2 columns \(area, code\); x is \(4, 3\)\. A row needs all"),
        (np.zeros(2), r"got \(2,\)"),
        (np.zeros((2, 3, 9)), r"trained on data of kind 'table'; x is \(2, 3, 9\)"),
        (pd.DataFrame({"area": [3.0]}), r"The DataFrame has no column 'code'; its columns: area"),
        (pd.DataFrame([[1, 2, 3]], columns=["area", "area", "code"]), r"'area' more than once"),
        (pd.DataFrame({"area": ["big"], "code": ["x"]}), r"row 0: area is 'big', expected a numb"),
        (homes()[:0], r"has no rows, or no columns: \(0, 3\)"),
        ([[1.0, "x"], [2.0]], r"x must be \(n, p\) for a table.*; got \(2,\)"),
        (object(), r"kind 'table': it needs a DataFrame, rows"),
        ("photo.png", r"photo\.png does not exist"),
    ],
)
def test_what_is_no_row_is_refused(fitted, data, message):
    with pytest.raises(DataError, match=message):
        read_inputs(data, fitted.preprocessing, "table")


def test_tables_and_texts_are_no_signals(tmp_path):
    with pytest.raises(DataError, match=r"kind 'signal': it needs signals \(n, c, l\).*; got a ta"):
        read_inputs(homes(), {"channels": 2}, "signal")
    with pytest.raises(DataError, match=r"kind 'signal'.*got list of <U1"):
        read_inputs([["a"]], {"channels": 2}, "signal")
