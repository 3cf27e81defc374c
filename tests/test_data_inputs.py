"""New data for a fitted model."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rnc.data import DataError, inputs_from_arrays, read_inputs, read_table, table_from_arrays


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "new" / "sub").mkdir(parents=True)
    for i, name in enumerate(["a.png", "b.jpg", "sub/c.png"]):
        Image.new("RGB", (9, 9), (100 * i, 0, 0)).save(tmp_path / "new" / name)
    return tmp_path / "new"


def reds(inputs):
    return [round(int(value) / 100) for value in inputs.x[:, 0, 2, 2]]


def test_folder_of_images_is_read_by_name(folder):
    inputs = read_inputs(folder, {}, "image", image_size=4)
    assert inputs.x.shape == (3, 3, 4, 4)
    assert inputs.names.tolist() == ["a.png", "b.jpg", "sub/c.png"]
    assert reds(inputs) == [0, 1, 2]


def test_one_image_and_a_list_are_read_in_the_order_given(folder):
    one = read_inputs(str(folder / "b.jpg"), {}, "image", image_size=4)
    assert (reds(one), one.names.tolist()) == ([1], [str(folder / "b.jpg")])
    mixed = read_inputs([folder / "b.jpg", folder / "sub", folder / "a.png"], {}, "image")
    assert mixed.x.shape == (3, 3, 224, 224)
    assert reds(mixed) == [1, 2, 0]


def test_list_of_one_table_is_that_table(folder):
    (folder / "t.csv").write_text("x,file\n1,sub/c.png\n2,a.png\n")
    inputs = read_inputs([folder / "t.csv"], {}, "image", image_size=4)
    assert reds(inputs) == [2, 0]
    assert inputs.names.tolist() == ["sub/c.png", "a.png"]
    (folder.parent / "t.csv").write_text("x,file\n1,sub/c.png\n2,a.png\n")
    elsewhere = read_inputs(folder.parent / "t.csv", {}, "image", images=folder, image_size=4)
    assert reds(elsewhere) == [2, 0]


def test_grey_model_gets_grey_images(folder):
    inputs = read_inputs(folder, {"channels": 1}, "image", image_size=4)
    assert inputs.x.shape == (3, 1, 4, 4)


def test_bad_images_are_listed_or_skipped(folder):
    (folder / "d.png").write_text("no picture")
    message = rf"1 of 4 images cannot be used:\n  {folder / 'd.png'}: not an image\nRepair them, or"
    with pytest.raises(DataError, match=message):
        read_inputs(folder, {}, "image", image_size=4)
    inputs = read_inputs(folder, {}, "image", image_size=4, skip_bad=True)
    assert inputs.names.tolist() == ["a.png", "b.jpg", "sub/c.png"]
    assert reds(inputs) == [0, 1, 2]
    assert list(inputs.skipped) == [("d.png", "not an image")]


def test_nothing_to_read_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="nothing to predict: the list is empty"):
        read_inputs([], {}, "image")
    with pytest.raises(
        DataError, match=r"nowhere: 1 of 1 images .*\n.*no such file\nNo usable rows"
    ):
        read_inputs(tmp_path / "nowhere", {}, "image", skip_bad=True)
    with pytest.raises(DataError, match=r"b\*\.csv: no file has a name like this"):
        read_inputs([folder / "a.csv", folder / "b*.csv"], {"columns": []}, "table")


def test_images_are_cached_on_request(folder, tmp_path):
    for _ in range(2):
        inputs = read_inputs(folder, {}, "image", image_size=4, cache=tmp_path / "cache")
        assert isinstance(inputs.x, np.memmap)
    assert len(list((tmp_path / "cache").glob("new-4-*.npy"))) == 1


def test_rows_of_a_table_come_out_as_in_training(tmp_path):
    frame = pd.DataFrame(
        {
            "age": range(30),
            "a": np.arange(30) % 7,
            "code": ["01", "02", "x"] * 10,
            "b": [1, None] * 15,
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", target="age")
    saved = json.loads(json.dumps(table.preprocessing))
    # Alone, the code would be read as a number, and the columns come in another order.
    frame.loc[[0, 1, 3], ["code", "b", "a"]].to_csv(tmp_path / "new.csv", index=False)
    inputs = read_inputs(tmp_path / "new.csv", saved, "table")
    assert (inputs.x == table.x[[0, 1, 3]]).all()
    assert inputs.names.tolist() == ["2", "3", "4"]


def test_arrays_come_out_as_in_training(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, (30, 4))
    table = table_from_arrays(x, np.arange(30))
    assert (inputs_from_arrays(x[:5], table.preprocessing, "table").x == table.x[:5]).all()
    np.savez(tmp_path / "d.npz", x=x[5:9])
    assert (read_inputs(tmp_path / "d.npz", table.preprocessing, "table").x == table.x[5:9]).all()
    swapped = pd.DataFrame(x[:, ::-1], columns=["x3", "x2", "x1", "x0"])
    assert (inputs_from_arrays(swapped, table.preprocessing, "table").x == table.x).all()


def test_columns_of_a_dataframe_may_be_numbers():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), index=range(5, 25))
    table = table_from_arrays(frame, np.arange(20))
    assert (inputs_from_arrays(frame[[1, 0]], table.preprocessing, "table").x == table.x).all()


def test_signals_and_pixels_keep_their_values(tmp_path):
    signals = np.random.default_rng(0).normal(size=(4, 2, 9))
    np.savez(tmp_path / "d.npz", x=signals)
    inputs = read_inputs(tmp_path / "d.npz", {"channels": 2}, "signal")
    assert inputs.x.dtype == np.float32
    assert np.allclose(inputs.x, signals)
    pixels = np.arange(256).reshape(1, 1, 16, 16)
    assert (inputs_from_arrays(pixels, {"channels": 1}, "image").x == pixels).all()


@pytest.mark.parametrize(
    ("x", "preprocessing", "kind", "message"),
    [
        (np.zeros((2, 3)), {"channels": 2}, "signal", r"of kind 'signal'; x is \(2, 3\)"),
        (
            np.zeros((2, 3, 9)),
            {"channels": 2},
            "signal",
            r"trained on 2 channels; x has 3: \(2, 3,",
        ),
        (np.zeros((2, 1, 4, 4), int), {}, "image", r"trained on 3 channels; x has 1"),
        (
            np.zeros((2, 3)),
            {"columns": [{"name": "a"}]},
            "table",
            r"on 1 columns \(a\); x is \(2, 3\)",
        ),
    ],
)
def test_data_of_another_shape_than_in_training_are_refused(x, preprocessing, kind, message):
    with pytest.raises(DataError, match=message):
        inputs_from_arrays(x, preprocessing, kind)


def test_signal_models_do_not_read_tables(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"is of type '\.csv'; expected a file of type \.npz\."):
        read_inputs(tmp_path / "t.csv", {"channels": 2}, "signal")
