"""Analyses of a run, by name from Python and from the command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from evaluation_cases import data_of, files, fitted, houses, table_of, untrained, written
from rnc.analyses.analysis import AnalysisOptions
from rnc.analyses.registry import ANALYSES, analyse, choose
from rnc.analyses.standard import STANDARD
from rnc.cli import app
from rnc.experiments.retraining import RETRAINING
from rnc.files import read_tensors

EVERY = ANALYSES | RETRAINING
DOCS = Path(__file__).parent.parent / "docs" / "analyses.md"


def rnc(*words):
    """Exit code and everything that was printed, on one line."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("houses")
    return fitted(folder / "run", houses(folder / "houses.csv"))


def test_all_are_those_that_train_nothing():
    assert choose(["all"]) == choose(["all"], EVERY) == list(ANALYSES)
    assert choose(["reduced", "all", "map"], EVERY) == ["reduced", *ANALYSES]
    assert set(RETRAINING) == {"reduced", "transfer"}


def test_a_fitted_run_has_the_coverage_of_its_intervals(run):
    found = written(run, "coverage")
    known = run.scores["intervals"]
    of_target = found["targets"]["price"]
    for key in ("coverage", "low", "high", "width"):
        assert of_target["all"][key] == pytest.approx(known["coverage"]["0.9"]["price"][key])
    assert (found["confidence"], of_target["kind"]) == (0.9, known["kinds"]["price"])
    assert set(of_target["subgroups"]) == {"town", "age"}
    curve = of_target["curve"]
    assert curve["confidence"][0] == 0.1
    assert curve["coverage"] == sorted(curve["coverage"])
    at = curve["confidence"].index(0.9)
    assert curve["width"][at] == pytest.approx(of_target["all"]["width"])


def test_an_unknown_name_lists_the_known_ones(run):
    names = "map, coverage, intervals, pca, similarity, subgroups, targets, neighbours, order"
    names += ", readable, unseen, corruption, reduced"
    with pytest.raises(ValueError, match=f"Unknown analysis 'maps'; known are {names}, transfer"):
        analyse(run, "maps", analyses=EVERY)
    code, text = rnc("evaluate", run.path, "--with", "order", "--with", "everything")
    assert code == 2
    assert "Unknown analysis 'everything'; known are map, coverage" in text
    assert not (run.path / "analyses" / "order.json").exists()


def test_a_fitted_run_has_the_standard_analyses(run):
    found = {path.name for path in (run.path / "analyses").iterdir()}
    names = {*STANDARD, "neighbours"}
    assert found == {f"{name}.json" for name in names} | {"similarity.safetensors"}


def test_what_does_not_apply_is_left_out_of_a_fitted_run(tmp_path):
    source = houses(tmp_path / "houses.csv")
    run = fitted(tmp_path / "run", source, subgroup_columns=[])
    found = {path.stem for path in (run.path / "analyses").iterdir()}
    assert found == {*STANDARD, "neighbours"} - {"subgroups"}


def test_all_does_what_applies_and_says_what_does_not(run):
    before = files(run.path)
    code, text = rnc("evaluate", run.path, "--with", "all", "--map-method", "pca")
    assert code == 0, text
    assert "unseen left out: unseen needs the ranges of price that training has seen" in text
    assert "corruption left out: corruption needs a run on images" in text
    found = {path.name for path in (run.path / "analyses").iterdir()}
    quick = {*STANDARD, "map", "neighbours", "order", "readable"}
    assert found == {f"{name}.json" for name in quick} | {"similarity.safetensors"}
    assert f"order: {run.path / 'analyses' / 'order.json'}" in text
    assert files(run.path) == before
    assert set(read_tensors(run.path / "analyses" / "similarity.safetensors")[0]) == {"matrix"}


def test_what_is_asked_for_by_name_must_apply(run):
    code, text = rnc("evaluate", run.path, "--with", "all", "--with", "corruption")
    assert code == 2
    assert "needs a run on images" in text


def test_flags_reach_their_analyses(run):
    rnc("evaluate", run.path, "--with", "unseen", "--seen", "-5:300", "--seen", "400:500")
    content = json.loads((run.path / "analyses" / "unseen.json").read_text())
    assert content["ranges"] == [[-5.0, 300.0], [400.0, 500.0]]
    code, text = rnc(
        *("evaluate", run.path, "--with", "reduced", "--share", "0.5", "--seeds", "2"),
        *("--with", "transfer", "--data", run.config["data"]["source"]),
    )
    assert code == 0, text
    rows = json.loads((run.path / "analyses" / "reduced.json").read_text())["rows"]
    assert {(row["share"], row["seed"]) for row in rows} == {(0.5, 0), (0.5, 1)}
    assert (run.path / "analyses" / "transfer.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--with", "unseen", "--seen", "20-30"), "--seen needs LOW:HIGH, two numbers"),
        (("--with", "map", "--data", "x.csv"), "got --with map. Add --with transfer, or leave"),
        (("--with", "transfer"), "transfer needs the table to transfer to: --data"),
        (("--with", "map", "--map-method", "isomap"), "known are pca, tsne, umap"),
        (("--with", "reduced", "--share", "7"), "shares above 0 and up to 1"),
    ],
)
def test_bad_input_is_one_clear_line(run, words, message):
    code, text = rnc("evaluate", run.path, *words)
    assert code == 2
    assert message in text
    assert "Traceback" not in text


def test_without_analyses_the_scores_are_shown(run):
    code, text = rnc("evaluate", run.path)
    assert code == 0
    assert "Spearman" in text
    code, text = rnc("evaluate", run.path, "--data", run.config["data"]["source"])
    assert code == 0
    assert "R² against the mean of the training rows" in text
    assert "few-shot" not in text  # the only group holds all rows


def test_a_stopped_analysis_says_that_it_goes_on(run, monkeypatch):
    def stop(run: object, options: AnalysisOptions) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(ANALYSES, "order", stop)
    code, text = rnc("evaluate", run.path, "--with", "order")
    assert code == 130
    assert "Stopped in order. Finished parts are not done again." in text


def test_a_run_without_a_source_is_analysed_from_its_files(tmp_path):
    run = untrained(tmp_path, table_of(town=np.arange(300) % 5))
    code, text = rnc("evaluate", run.path, "--with", "subgroups", "--with", "targets")
    assert code == 0, text
    code, text = rnc("evaluate", run.path, "--with", "reduced")
    assert code == 2
    assert "does not say where its data are, as runs of `rnc fit` do" in text


def test_every_analysis_is_documented_and_in_the_help():
    code, text = rnc("evaluate", "--help")
    assert code == 0
    headings = re.findall(r"^## `(\w+)`", DOCS.read_text(), flags=re.MULTILINE)
    assert headings == list(EVERY)
    for name in EVERY:
        assert name in text
    assert "rnc evaluate runs/age --with all" in text


def test_a_run_may_be_named_by_its_path(run):
    path = analyse(str(run.path), "targets")
    assert path == run.path / "analyses" / "targets.json"
    assert list(data_of(Path("x")).target) == list(json.loads(path.read_text()))
