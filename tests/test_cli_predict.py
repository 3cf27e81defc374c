"""`rnc predict`: what it reads, what it writes, and what it never overwrites."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from evaluation_cases import fitted, houses
from rnc.cli import app
from rnc.data import DataWarning
from rnc.model import load
from rnc.run.other import evaluate_other
from rnc.run.outputs import check_output


def rnc(*words):
    """Exit code, standard output, and everything that was printed on one line."""
    result = CliRunner().invoke(app, ["predict", *map(str, words)], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, " ".join(result.output.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    return fitted(folder / "run", houses(folder / "houses.csv")).path


@pytest.fixture
def new(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return houses(Path("new.csv"), n=5, id=[f"00{i}" for i in range(5)], name=list("abcde"))


def test_ids_come_first_and_no_name_is_taken_twice(run, new):
    code, _, text = rnc(run, new)
    assert (code, text) == (0, "5 predictions in predictions.csv")
    frame = pd.read_csv("predictions.csv", dtype=str)
    assert list(frame) == ["name", "price_given", "town", "age", "id", "name_given", "price"]
    given = pd.read_csv(new, dtype=str)
    assert frame["id"].tolist() == ["000", "001", "002", "003", "004"]
    assert frame["price_given"].tolist() == given["price"].tolist()
    assert frame["name_given"].tolist() == list("abcde")
    predicted = [float(text) for text in frame["price"]]
    np.testing.assert_array_equal(predicted, load(run).predict(pd.read_csv(new))[:, 0])


def test_an_existing_file_is_replaced_on_request_only(run, new):
    Path("predictions.csv").write_text("mine")
    code, _, text = rnc(run, new)
    assert code == 2
    assert "predictions.csv exists. Add --overwrite, or choose another name with -o." in text
    assert Path("predictions.csv").read_text() == "mine"
    code, _, text = rnc(run, new, "--overwrite")
    assert code == 0, text
    assert len(pd.read_csv("predictions.csv")) == 5


@pytest.mark.parametrize("alias", ["new.csv", "./sub/../new.csv", "link.csv", "hard.csv"])
@pytest.mark.parametrize("flag", ["-o", "--embeddings"])
def test_what_is_read_is_never_written(run, new, alias, flag):
    Path("sub").mkdir()
    Path("link.csv").symlink_to("new.csv")
    Path("hard.csv").hardlink_to("new.csv")
    before = new.read_bytes()
    code, _, text = rnc(run, "n*.csv", flag, alias, "--overwrite")
    assert code == 2
    assert "would overwrite the data that are read (new.csv). Choose another name" in text
    assert new.read_bytes() == before
    assert not Path("predictions.csv").exists()


def test_the_run_stays_as_it_is(run, new):
    before = (run / "predictions.csv").read_bytes()
    code, _, text = rnc(run, new, "-o", run / "predictions.csv", "--overwrite")
    assert (code, "is a part of the run" in text) == (2, True)
    assert (run / "predictions.csv").read_bytes() == before


def test_the_standard_output_is_the_table_and_nothing_else(run, new):
    code, out, _ = rnc(run, new, "-o", "-")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "name,price_given,town,age,id,name_given,price"
    assert len(lines) == 6
    assert not Path("predictions.csv").exists()


def test_several_files_and_formats(run, new, tmp_path):
    houses(Path("other.csv"), n=3, seed=1)
    words = ("-o", "deep/p.parquet", "--embeddings", "f.npz")
    code, _, text = rnc(run, "*.csv", "other.csv", *words)
    assert code == 0, text
    frame = pd.read_parquet("deep/p.parquet")
    assert frame["name"].tolist()[4:7] == ["new.csv:6", "other.csv:2", "other.csv:3"]
    assert frame["id"].tolist()[4] == "004"
    assert len(frame) == 11
    features = np.load("f.npz")
    assert features["names"].tolist() == frame["name"].tolist()
    np.testing.assert_array_equal(features["features"][:5], load(run).embed(new))
    code, _, text = rnc(run, new, "--embeddings", "f.tsv", "-o", "p.tsv")
    assert code == 0, text
    table = pd.read_csv("f.tsv", sep="\t")
    assert list(table)[:3] == ["name", "f0", "f1"]
    np.testing.assert_allclose(table.iloc[:, 1:], features["features"][:5], rtol=1e-6)
    assert list(pd.read_csv("p.tsv", sep="\t"))[-1] == "price"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "p.xls"), "p.xls must end in .csv, .tsv, .parquet, which says the format."),
        (("--embeddings", "f.txt"), "f.txt must end in .npz, .csv, .tsv, .parquet"),
        (("-o", "p.csv", "--embeddings", "./p.csv"), "are the same file: p.csv."),
        (("-o", "new.csv/p.csv"), "new.csv is no folder to write to."),
    ],
)
def test_outputs_are_checked_before_data_are_read(run, new, monkeypatch, words, message):
    monkeypatch.setattr("rnc.model.regressor.read_inputs", None)
    code, _, text = rnc(run, new, *words)
    assert (code, message in text) == (2, True), text


def test_an_unfinished_run_is_told_before_data_are_read(run, new, monkeypatch):
    monkeypatch.setattr("rnc.model.regressor.read_inputs", None)
    Path("run").mkdir()
    (Path("run") / "config.json").write_text((run / "config.json").read_text())
    code, _, text = rnc("run", new)
    assert (code, "the run is not finished. Continue it with `rnc resume run`." in text) == (
        2,
        True,
    )


def test_a_folder_without_leave_to_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("rnc.run.outputs.os.access", lambda folder, mode: False)
    with pytest.raises(PermissionError, match=r"cannot be written: .* is no folder to write to"):
        check_output(tmp_path / "p.csv", (".csv",), run=tmp_path, sources=[], overwrite=True)


# ------------------------------------------------------------------- what is not as one may think


def test_categories_that_training_has_not_seen_are_counted(run, new, tmp_path):
    rows = pd.read_csv(new)
    rows["kind"] = ["hut", "flat", "hut", "tent", None]
    fit = pd.DataFrame({"kind": ["flat", "house"] * 30, "a": np.arange(60) % 13 * 0.5})
    fit.assign(price=fit["a"] * 2).to_csv(tmp_path / "fit.csv", index=False)
    columns = {"feature_columns": ("kind", "a"), "subgroup_columns": ()}
    folder = fitted(tmp_path / "run", tmp_path / "fit.csv", **columns).path
    rows.assign(a=1.0).to_csv("odd.csv", index=False)
    note = "kind: 3 of 5 rows have values that training has not seen (hut, tent). They are enc"
    code, _, text = rnc(folder, "odd.csv", "-o", "p.csv")
    assert code == 0
    assert f"Note: {note}" in text
    with pytest.warns(DataWarning, match=re.escape(note)):
        predictions = load(folder).predict(pd.read_csv("odd.csv"))
    with pytest.warns(DataWarning, match=re.escape(note)):
        load(folder).embed(pd.read_csv("odd.csv"))
    np.testing.assert_array_equal(pd.read_csv("p.csv")["price"], predictions[:, 0])
    other = evaluate_other(folder, Path("odd.csv"))
    assert other.notes[0].startswith(note)


def test_predictions_that_are_not_finite_are_counted_and_end_with_an_exit_code(run, new, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(run, folder)
    model = load(folder)
    with torch.no_grad():
        for weight in model.head.parameters():
            weight.fill_(np.nan)
    model.save(folder)
    code, _, text = rnc(folder, new, "-o", "p.csv")
    assert code == 1
    note = "5 of 5 predictions are not finite: 2, 3, 4, 5, 6. The weights may be damaged"
    assert f"Note: {note}" in text
    assert "5 predictions in p.csv" in text
    assert pd.read_csv("p.csv")["price"].isna().all()
    with pytest.warns(DataWarning, match="5 of 5 predictions are not finite"):
        load(folder).predict(pd.read_csv(new))
