"""A run folder as an analysis sees it."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from evaluation_cases import FAST, data_of, fitted, houses, table_of, untrained
from rnc.data import DataError
from rnc.files import read_tensors, write_tensors
from rnc.intervals.reference import read_reference
from rnc.run.fit import fit_run
from rnc.run.folder import TRAIN_TARGETS_FILE, DoesNotApply, RunFolder
from rnc.run.other import evaluate_other


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    return fitted(folder / "run", houses(folder / "houses.csv"))


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_run_gives_back_what_it_was_fitted_on_and_what_it_found(run):
    table = data_of(run.path.parent / "houses.csv").read(FAST.image_size)
    test, train = table.rows("test"), table.rows("train")
    np.testing.assert_array_equal(run.table.x, table.x)
    np.testing.assert_array_equal(run.train_targets, table.y[train])
    assert read_reference(run.path).names.tolist() == table.names[train].tolist()
    np.testing.assert_array_equal(run.truth, table.y[test])
    guesses = run.model.predict_prepared(table.x[test])
    np.testing.assert_allclose(run.errors, np.abs(guesses - table.y[test]), rtol=1e-5)
    np.testing.assert_allclose(
        run.features, run.model.embed_prepared(table.x[test[run.rows]]), rtol=1e-5
    )
    assert run.fit == FAST
    assert run.targets == ("price",)
    assert list(run.subgroups) == ["town", "age"]
    assert run.subgroups["town"].tolist() == table.subgroup["town"][test].tolist()


def test_other_data_are_scored_against_the_training_targets(copy, tmp_path):
    frame = pd.read_csv(copy.config["data"]["source"])
    test = frame.iloc[copy.predictions.frame["name"].astype(int) - 2]
    test.to_csv(tmp_path / "test.csv", index=False)
    folder = evaluate_other(copy.path, tmp_path / "test.csv").folder
    assert folder == copy.path / "evaluation-test"
    scores = RunFolder(folder).scores["test"]
    assert scores == pytest.approx(copy.scores["test"])
    assert {"r2", "few_mae"} <= set(scores)
    (copy.path / TRAIN_TARGETS_FILE).unlink()  # as of a run that did not keep them
    evaluate_other(copy.path, tmp_path / "test.csv", out=tmp_path / "out")
    assert set(scores) - set(RunFolder(tmp_path / "out").scores["test"]) >= {"r2", "few_mae"}


def test_training_targets_keep_their_digits(tmp_path):
    table = table_of()
    records = fit_run(table, FAST, tmp_path)
    next(records)  # they are there before the first epoch ends
    targets = read_tensors(tmp_path / TRAIN_TARGETS_FILE)[0]["targets"]
    assert targets.dtype == torch.float64
    np.testing.assert_array_equal(targets, table.y[table.rows("train")])


def test_a_run_that_is_replaced_loses_its_analyses(copy):
    for name in ("analyses", "other"):
        (copy.path / name).mkdir(exist_ok=True)
        (copy.path / name / "map.json").write_text("{}")
    (copy.path / "thumbnails.safetensors").write_text("old")
    list(fit_run(copy.table, FAST, copy.path, overwrite=True))
    assert not (copy.path / "analyses" / "map.json").exists()
    assert not (copy.path / "thumbnails.safetensors").exists()
    assert (copy.path / "other" / "map.json").exists()


def test_data_that_changed_or_went_are_named(copy, tmp_path):
    source = copy.config["data"]["source"]
    copy.config["data"]["source"] = str(houses(tmp_path / "houses.csv", n=200))
    with pytest.raises(DataError, match=r"160 rows then, 200 now"):
        _ = copy.table
    copy.config["data"]["source"] = "gone.csv"
    with pytest.raises(FileNotFoundError, match=r"fitted on gone\.csv, .* where `rnc fit` was"):
        _ = copy.table
    copy.config["data"] = {}
    with pytest.raises(DoesNotApply, match=r"where its data are.* RunFolder\(path, table\)"):
        _ = copy.table
    given = data_of(source).read(FAST.image_size)
    assert RunFolder(copy.path, given).table is given


@pytest.mark.parametrize("content", ["[]", '{"test": '])
def test_broken_scores_are_named_with_the_remedy(tmp_path, content):
    run = untrained(tmp_path, table_of(n=30))
    (tmp_path / "scores.json").write_text(content)
    with pytest.raises(
        ValueError, match=r"scores\.json cannot be used: .+ Write it again with `rnc"
    ):
        _ = RunFolder(run.path).scores


def test_files_that_are_missing_or_broken_are_named(tmp_path):
    run = untrained(tmp_path, table_of(n=30))
    (tmp_path / "features.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"features\.safetensors is damaged \(.*Write it again"):
        _ = run.features
    (tmp_path / "features.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no features\.safetensors: .*rnc resume"):
        _ = run.features
    (tmp_path / "predictions.csv").write_text("name,price\na,1\n")
    with pytest.raises(ValueError, match=r"there is no price_predicted"):
        _ = run.predictions
    with pytest.raises(FileNotFoundError, match=r"no run folder: it needs a config\.json"):
        _ = RunFolder(tmp_path / "nowhere").predictions


def test_features_of_a_diverged_run_are_refused(tmp_path):
    run = untrained(tmp_path, table_of(n=30))
    tensors, _ = read_tensors(tmp_path / "features.safetensors")
    tensors["features"][3] = torch.nan
    write_tensors(tmp_path / "features.safetensors", tensors)
    with pytest.raises(ValueError, match=r"NaN or infinite values in 1 of 10 samples"):
        _ = run.features


@pytest.mark.parametrize(
    ("source", "advice"),
    [("houses.csv", "in the folder where `rnc fit` was run"), ("{}/gone.csv", "Put the data back")],
)
def test_data_that_are_gone_are_asked_for(copy, tmp_path, source, advice):
    config = json.loads((copy.path / "config.json").read_text())
    config["data"]["source"] = source.format(tmp_path)
    (copy.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileNotFoundError, match=rf"does not exist, seen from .*{advice}"):
        RunFolder(copy.path).read_table()
