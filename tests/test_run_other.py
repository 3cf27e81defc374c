"""Evaluating a run on other labelled data, and the folder that this writes."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from evaluation_cases import fitted, houses
from rnc.cli import app
from rnc.data import DataError, csv_text, sources
from rnc.model import Regressor
from rnc.report import write_report
from rnc.run.folder import RunFolder
from rnc.run.other import evaluate_other
from rnc.run.partial import read_partial


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> RunFolder:
    folder = tmp_path_factory.mktemp("houses")
    return fitted(folder / "run", houses(folder / "houses.csv"))


@pytest.fixture
def run(fresh, tmp_path) -> RunFolder:
    shutil.copytree(fresh.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def other(tmp_path) -> Path:
    """Forty other houses, whose price is called cost, and whose town is unknown."""
    frame = pd.read_csv(houses(tmp_path / "other.csv", n=40, seed=1))
    frame = frame.rename(columns={"price": "cost"}).drop(columns="town")
    frame.to_csv(tmp_path / "other.csv", index=False)
    return tmp_path / "other.csv"


def test_other_names_and_missing_subgroups_are_no_hindrance(run, other, tmp_path) -> None:
    found = evaluate_other(run.path, other, out=tmp_path / "out", target=["cost"])
    assert found.notes == (f"{other} has no column town: no scores by it.",)
    evaluation = RunFolder(found.folder)
    assert evaluation.targets == ("price",)
    assert list(evaluation.subgroups) == ["age"]
    assert evaluation.scores["n"]["test"] == 40
    truth = pd.read_csv(other)["cost"].to_numpy()
    assert evaluation.truth[:, 0].tolist() == truth.tolist()


def test_the_data_are_read_once(run, other, tmp_path, monkeypatch) -> None:
    reads = []

    def read_csv(source, cells, *, progress):
        reads.append(source)
        return csv_text.read_csv(source, cells, progress=progress)

    monkeypatch.setattr(sources, "read_csv", read_csv)
    evaluate_other(run.path, other, out=tmp_path / "out", target=["cost"])
    assert reads == [other]


def test_a_target_that_is_not_there_is_asked_for(run, other, tmp_path) -> None:
    with pytest.raises(DataError, match=r"no column price; its columns: area, .*say so with --tar"):
        evaluate_other(run.path, other, out=tmp_path / "out")
    with pytest.raises(DataError, match=r"predicts 1 targets \(price\); got 2 with --target: cost"):
        evaluate_other(run.path, other, out=tmp_path / "out", target=["cost", "area"])
    assert not (tmp_path / "out").exists()


def test_a_report_shows_an_evaluation_beside_its_run(run, other, tmp_path) -> None:
    out = evaluate_other(run.path, other, out=tmp_path / "out", target=["cost"]).folder
    partial = read_partial(out)
    assert partial.missing == []
    assert partial.name == "run on other"
    assert partial.config["evaluation_of"] == str(run.path)
    page = write_report([run.path, out], tmp_path / "both.html").read_text()
    assert "run on other" in page
    assert write_report([out]).exists()
    with pytest.raises(FileNotFoundError, match=r"is an evaluation of .*run.* Use that run"):
        Regressor.load(out)


def test_only_an_evaluation_gives_way_and_only_if_told(run, other, tmp_path) -> None:
    out = tmp_path / "out"
    evaluate_other(run.path, other, out=out, target=["cost"])
    with pytest.raises(FileExistsError, match=r"out holds an evaluation. Add --overwrite"):
        evaluate_other(run.path, other, out=out, target=["cost"])
    evaluate_other(run.path, other, out=out, target=["cost"], overwrite=True)
    before = (run.path / "scores.json").read_bytes()
    with pytest.raises(FileExistsError, match=r"run exists and holds a run. Choose a new folder"):
        evaluate_other(run.path, other, out=run.path, target=["cost"], overwrite=True)
    assert (run.path / "scores.json").read_bytes() == before
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"holds something else. Choose a new folder"):
        evaluate_other(run.path, other, out=out, target=["cost"], overwrite=True)
    with pytest.raises(FileExistsError, match="holds something else"):
        evaluate_other(run.path, other, out=out / "thesis.tex", target=["cost"], overwrite=True)
    assert (out / "thesis.tex").read_text() == "years of work"


def test_the_same_data_are_evaluated_again_in_the_run_folder_but_no_others(
    run, other, tmp_path
) -> None:
    folder = evaluate_other(run.path, other, target=["cost"]).folder
    assert folder == run.path / "evaluation-other"
    assert evaluate_other(run.path, other, target=["cost"]).folder == folder
    namesake = houses(tmp_path / "run" / "other.csv", n=30)
    with pytest.raises(FileExistsError, match="holds an evaluation"):
        evaluate_other(run.path, namesake)
    (folder / "config.json").unlink()  # as an older version left it
    evaluate_other(run.path, other, target=["cost"])
    assert json.loads((folder / "config.json").read_text())["data"]["source"] == str(other)


def test_the_command_says_what_it_left_out_and_where_the_scores_are(run, other, tmp_path) -> None:
    words = ["evaluate", run.path, "--data", other, "--target", "cost", "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "has no column town: no scores by it." in text
    assert f"rnc report {run.path} {tmp_path / 'out'} --out report.html" in text
    assert "price: off by" in text
    result = CliRunner().invoke(app, ["evaluate", str(run.path), "--out", str(tmp_path / "x")])
    assert (result.exit_code, "--out is for the scores of --data" in result.output) == (2, True)


def test_rows_without_a_target_can_be_left_out(run, other, tmp_path) -> None:
    frame = pd.read_csv(other)
    frame.loc[3, "cost"] = float("nan")
    frame.to_csv(other, index=False)
    with pytest.raises(DataError, match="cost is missing in 1 of 40 rows"):
        evaluate_other(run.path, other, out=tmp_path / "out", target=["cost"])
    found = evaluate_other(
        run.path, other, out=tmp_path / "out", target=["cost"], drop_missing=True
    )
    assert found.notes[1].startswith("1 rows skipped, such as 5: cost is missing")
    assert RunFolder(found.folder).scores["n"]["test"] == 39
