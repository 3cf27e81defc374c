"""Predictions of a run for new samples."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from torch import nn

from evaluation_cases import fitted, houses
from rnc.data import csv_text
from rnc.data.errors import DataError
from rnc.data.images import decode
from rnc.estimator import RnCRegressor
from rnc.heads import head_config
from rnc.model import ModelConfig, Regressor, load
from rnc.run.predict import predict_run, predict_to_files
from rnc.run.predictions import EXTRAS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    return fitted(folder / "run", houses(folder / "houses.csv"))


def test_predictions_are_those_of_the_model_by_the_name_of_the_sample(run, tmp_path):
    frame, _, skipped, *_ = predict_run(run.path, houses(tmp_path / "new.csv", n=7, seed=1))
    assert list(frame) == ["name", "price_given", "town", "age", "price"]
    assert frame["name"].tolist() == [str(row) for row in range(2, 9)]
    assert skipped == ()
    again, *_ = predict_run(run.path, run.path.parent / "houses.csv")
    table = run.table
    expected = Regressor.load(run.path).steady().predict_prepared(table.x)[:, 0]
    by_name = pd.Series(expected, index=table.names)
    np.testing.assert_array_equal(again["price"], by_name[again["name"]])


def test_files_in_pieces_hold_what_is_predicted_at_once(run, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 5 * 100)
    new, seen = houses(tmp_path / "new.csv.gz", n=1100, seed=1), []
    predict_to_files(
        run.path,
        [str(new)],
        str(tmp_path / "p.csv"),
        embeddings=tmp_path / "f.npz",
        show=lambda done, total, what: seen.append((done, what)),
    )
    predict_to_files(run.path, [str(new)], str(tmp_path / "p.parquet"))
    at_once = predict_run(run.path, new, features=True)
    expected = at_once.frame.to_csv(index=False, lineterminator="\n")
    assert (tmp_path / "p.csv").read_text() == expected
    parquet = pd.read_parquet(tmp_path / "p.parquet")
    assert parquet.to_csv(index=False, lineterminator="\n") == expected
    with np.load(tmp_path / "f.npz") as features:
        assert features["names"].tolist() == at_once.frame["name"].tolist()
        np.testing.assert_array_equal(features["features"], at_once.features)
    assert len(seen) > 3
    assert seen[-1] == (1100, "predicting")


def test_an_error_in_the_last_row_leaves_no_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 5 * 100)
    new = houses(tmp_path / "new.csv", n=1100)
    new.write_text(new.read_text() + "large,3,1,north,2\n")
    with pytest.raises(DataError, match=r"row 1102: area is 'large', expected a number"):
        predict_to_files(run.path, [str(new)], str(tmp_path / "p.csv"))
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_an_extra_is_a_further_column(run, tmp_path, monkeypatch):
    monkeypatch.setitem(EXTRAS, "upper", lambda model, z: model.head.decode(model.head(z)) + 5)
    monkeypatch.setitem(EXTRAS, "absent", lambda model, features: None)
    frame, *_ = predict_run(run.path, houses(tmp_path / "new.csv", n=7))
    assert list(frame)[-2:] == ["price", "price_upper"]
    np.testing.assert_allclose(frame["price_upper"] - frame["price"], 5, rtol=1e-4)


def test_a_run_of_an_older_version_sees_a_picture_as_its_file(tmp_path):
    head = vars(head_config("l1", 128, np.arange(30.0)))
    config = ModelConfig("image", "small-cnn", (3, 14, 14), {"size": 14}, head, ("age",))
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 25, 40), dtype=np.uint8)
    Image.fromarray(pixels[0].transpose(1, 2, 0)).save(tmp_path / "a.png")
    model = Regressor(config)
    model.save(tmp_path / "files", {"data": {"source": "faces.csv"}})
    model.save(tmp_path / "arrays", {"data": {"source": "faces.npz"}})
    of_files, of_arrays = load(tmp_path / "files"), load(tmp_path / "arrays")
    expected = of_files.predict_prepared(decode(tmp_path / "a.png", 16)[None])
    np.testing.assert_array_equal(of_files.predict(tmp_path / "a.png"), expected)
    np.testing.assert_array_equal(of_files.predict(pixels), expected)
    np.testing.assert_array_equal(of_arrays.predict(pixels), model.predict_prepared(pixels))


def test_an_encoder_of_the_callers_predicts_raw_rows(tmp_path):
    x = np.random.default_rng(0).normal(50, 20, (40, 3))
    encoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
    fitted = RnCRegressor(encoder=encoder, epochs=1, device="cpu").fit(x, x[:, 0])
    fitted.model_.save(tmp_path / "run")
    loaded = load(tmp_path / "run", nn.Sequential(nn.Linear(3, 8), nn.Tanh()))
    np.testing.assert_array_equal(loaded.predict(x)[:, 0], fitted.predict(x))


def test_signals_of_another_length_are_refused():
    head = vars(head_config("l1", 256, np.arange(30.0)))
    channels = {"channels": 2}
    config = ModelConfig("signal", "resnet1d10", (2, 90), {"crop": 0.9}, head, ("age",), channels)
    model = Regressor(config)
    assert model.predict(np.zeros((3, 2, 100))).shape == (3, 1)
    with pytest.raises(
        ValueError, match=r"of shape \(2, 90\); these samples, \(3, 2, 60\), .* of 100 values"
    ):
        model.predict(np.zeros((3, 2, 60)))
