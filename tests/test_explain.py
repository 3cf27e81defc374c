"""Explanations of predictions by the nearest training samples, in every interface."""

import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from evaluation_cases import data_of, houses, untrained
from rnc.cli import app
from rnc.data import csv_text
from rnc.data.errors import DataError
from rnc.estimator import RnCRegressor
from rnc.files import REFERENCE_FILE
from rnc.intervals.explanation import Explainer
from rnc.intervals.reference import make_reference, read_reference
from rnc.model import load
from rnc.run.folder import RunFolder
from rnc.run.predict import predict_run, predict_to_files


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("houses")
    data = data_of(houses(folder / "houses.csv"))
    return untrained(folder / "run", data.read(224), data=data)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """New houses; one is unlike all others."""
    path = houses(tmp_path / "new.csv", n=40, seed=1)
    frame = pd.read_csv(path)
    frame.loc[3, ["area", "rooms"]] = [1000, 60]
    frame.to_csv(path, index=False)
    return path


def test_it_names_the_nearest_training_samples(run: RunFolder, new: Path) -> None:
    model, table = load(run.path), run.table
    explanation = model.explain(new, 3)
    features, rows = model.embed(new), table.rows("train")
    known = model.steady().embed_prepared(table.x, rows=rows)
    gaps = np.sqrt(((features[:, None].astype(np.float64) - known) ** 2).sum(axis=2))
    nearest = np.argsort(gaps, axis=1)[:, :3]
    np.testing.assert_array_equal(explanation.rows, rows[nearest])
    assert explanation.names.tolist() == table.names[rows[nearest]].tolist()
    np.testing.assert_array_equal(explanation.targets, table.y[rows[nearest]])
    np.testing.assert_allclose(explanation.distances, np.sort(gaps, axis=1)[:, :3], rtol=1e-5)


def test_out_of_range_is_further_than_99_of_100_training_samples(run: RunFolder, new: Path) -> None:
    model, table = load(run.path), run.table
    explanation = model.explain(new)
    known = model.steady().embed_prepared(table.x, rows=table.rows("train")).astype(np.float64)
    own = np.sqrt(((known[:, None] - known) ** 2).sum(axis=2))
    np.fill_diagonal(own, np.inf)
    ordered = np.sort(own.min(axis=1))
    assert len(ordered) == 112
    assert explanation.limit == pytest.approx(ordered[110], rel=1e-5)  # 1 of 112 is further
    assert explanation.out_of_range[3]
    expected = explanation.distances[:, 0] > explanation.limit
    np.testing.assert_array_equal(explanation.out_of_range, expected)
    assert explanation.out_of_range.sum() < 10


def test_all_doors_say_the_same(run: RunFolder, new: Path, tmp_path: Path) -> None:
    words = ["predict", str(run.path), str(new), "-o", str(tmp_path / "p.csv"), "--explain"]
    result = CliRunner().invoke(app, [*words, "--neighbours", "2"], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    written = pd.read_csv(tmp_path / "p.csv", dtype={"neighbour_1": str, "neighbour_2": str})
    explanation = load(run.path).explain(new, 2)
    assert list(explanation.frame) == [
        "out_of_range",
        "neighbour_1",
        "neighbour_1_distance",
        "neighbour_1_price",
        "neighbour_2",
        "neighbour_2_distance",
        "neighbour_2_price",
    ]
    pd.testing.assert_frame_equal(
        written[list(explanation.frame)], explanation.frame, check_dtype=False
    )
    from_python = predict_run(run.path, new, explain=2)
    assert list(from_python.frame) == list(written)
    count = int(explanation.out_of_range.sum())
    assert f"Note: Out of range: {count} of 40 samples (about 1 in 100 is usual)" in result.output
    assert from_python.notes == (
        f"Out of range: {count} of 40 samples (about 1 in 100 is usual). They are far from all 112 "
        "training samples that the model keeps: 99% of those have a closer neighbour. Trust these "
        "predictions less.",
    )


def test_pieces_are_explained_as_the_whole(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = houses(tmp_path / "new.csv", n=700, seed=1)
    at_once = predict_run(run.path, new, explain=3)
    monkeypatch.setattr(csv_text, "CHUNK_CELLS", 5 * 100)
    made = predict_to_files(run.path, [str(new)], str(tmp_path / "p.parquet"), explain=3)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "p.parquet"), at_once.frame, check_dtype=False
    )
    assert made.notes == at_once.notes


def test_an_estimator_says_rows_of_its_own_data(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    model = RnCRegressor(epochs=1, head="mse", preset="quick").fit(x, x[:, 0])
    explanation = model.explain(x + 1e-9, k=2)
    train = explanation.distances[:, 0] < 1e-6
    assert 50 <= train.sum() <= 56  # the others validate
    assert (explanation.rows[train, 0] == np.flatnonzero(train)).all()
    np.testing.assert_array_equal(explanation.targets[:, :, 0], x[explanation.rows, 0])
    model.model_.save(tmp_path)
    kept = pickle.loads(pickle.dumps(model)).explain(x, 2)
    np.testing.assert_array_equal(load(tmp_path).explain(x, 2).rows, kept.rows)
    load(tmp_path).save(tmp_path / "again")
    before, after = (read_reference(path) for path in (tmp_path, tmp_path / "again"))
    assert before.names.tolist() == after.names.tolist()


def test_columns_keep_apart_whatever_targets_are_called() -> None:
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(9, 4)).astype(np.float32), random.normal(size=(9, 2))
    reference = make_reference(features, targets, np.array(list("abcdefghi")), np.arange(9), 9)
    explain = Explainer(reference, ("distance", "out_of_range"), k=1)
    columns = explain(features).columns(["name", "distance", "out_of_range"])
    assert list(columns) == [
        "out_of_range_",
        "neighbour_1",
        "neighbour_1_distance",
        "neighbour_1_distance_",
        "neighbour_1_out_of_range",
    ]
    features[0, 0] = np.nan
    lost = explain(features[:1])
    assert (lost.names[0, 0], lost.rows[0, 0], lost.out_of_range[0]) == ("", -1, True)
    assert np.isnan(lost.targets).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--explain", "--neighbours", "113"], "needs 1 to 112 neighbours.*got 113"),
        (["--explain", "--neighbours", "0"], "needs 1 to 112 neighbours.*got 0"),
        (["--neighbours", "3"], "--neighbours says how many --explain finds. Add --explain"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], message: str, run: RunFolder, new: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.csv"
    command = ["predict", str(run.path), str(new), "-o", str(out), *words]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert re.search(message, result.output.replace("\n", " ")), result.output
    assert not out.exists()


def test_a_reference_that_is_missing_or_of_another_model_is_told(
    run: RunFolder, new: Path, tmp_path: Path
) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / REFERENCE_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"rnc evaluate .*run --with neighbours"):
        predict_run(tmp_path / "run", new, explain=5)
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(9, 4)).astype(np.float32), random.normal(size=(9, 2))
    other = make_reference(features, targets, np.array(list("abcdefghi")), np.arange(9), 9)
    other.save(tmp_path / "run")
    with pytest.raises(ValueError, match="4 features and 2 targets of each sample, the model"):
        load(tmp_path / "run").explain(new)
    model = load(run.path)
    with pytest.raises(DataError):
        model.explain(np.zeros((2, 3, 32, 32), np.uint8))
    model.folder = model.reference = None
    with pytest.raises(ValueError, match="keeps no training samples to compare with"):
        model.explain(new)
