"""The paper's datasets as a user types them: list, check, fit, and read again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dataset_copies
import rnc
from rnc.cli import app
from rnc.config import FitConfig
from rnc.data.datasets.registry import DATASETS, read_dataset
from rnc.run.folder import RunFolder
from rnc.run.start import suit_dataset

FAST = ["--preset", "quick", "--epochs", "1", "--batch-size", "4", "--device", "cpu"]
FAST += ["--encoder", "small-cnn", "--image-size", "28"]
FAST_FIELDS = {"preset": "quick", "epochs": 1, "batch_size": 4, "device": "cpu"}
FAST_FIELDS |= {"encoder": "small-cnn", "image_size": 28}


def run(*words: str | Path) -> tuple[int, str]:
    """Exit code and everything that was printed, on one line."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


def test_the_list_says_what_each_is_and_how_to_get_it() -> None:
    code, text = run("datasets")
    assert code == 0
    for dataset in DATASETS.values():
        assert f"{dataset.title}: {dataset.what}" in text
        assert f"access: {dataset.access}" in text
    assert 'pip install "rank-n-contrast[eeg]"' in text
    assert "rnc datasets check NAME --root DIR" in text


def test_a_whole_copy_is_checked_and_the_next_command_given(tmp_path: Path) -> None:
    code, text = run("datasets", "check", "AgeDB", "--root", dataset_copies.agedb(tmp_path))
    assert code == 0, text
    assert "ok All 24 images can be read." in text
    assert "warning 24 images in agedb.csv; published: 16,488." in text
    assert "0 errors." in text
    assert f"rnc fit agedb --root {tmp_path} --out runs/agedb" in text


def test_a_broken_copy_ends_with_code_1_and_says_what_is_wrong(tmp_path: Path) -> None:
    root = dataset_copies.agedb(tmp_path)
    images = sorted((root / "AgeDB").iterdir())
    images[0].unlink()
    dataset_copies.cut(images[1])
    code, text = run("datasets", "check", "agedb", "--root", root)
    assert code == 1
    assert "error 1 of 24 images are missing" in text
    assert "error 1 of 24 images are broken" in text
    assert "2 errors." in text
    assert "rnc fit" not in text
    code, text = run("datasets", "check", "agedb", "--root", tmp_path / "nowhere")
    assert code == 1
    assert "nowhere does not exist" in text


def test_an_unknown_dataset_lists_the_known_ones(tmp_path: Path) -> None:
    code, text = run("datasets", "check", "faces", "--root", tmp_path)
    assert code == 2
    assert "no dataset 'faces'; known are agedb, imdb-wiki, tuab, mpiifacegaze, skyfinder" in text


def test_a_dataset_becomes_a_run_that_reads_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset_copies.agedb(tmp_path / "data")
    (tmp_path / "agedb").mkdir()  # a folder of that name is no file of data
    words = ["fit", "agedb", "--root", "data", "--dataset-option", "split=person"]
    words += ["--dataset-option", "split-seed=3", *FAST, "--out", "run"]
    code, text = run(*words)
    assert code == 0, text
    config = json.loads(Path("run/config.json").read_text())
    assert config["data"] == {
        "source": "data",
        "dataset": "agedb",
        "dataset_options": {"split": "person", "split_seed": 3},
        "target": ["age"],
    }
    table = RunFolder(Path("run")).table
    options = {"split": "person", "split_seed": 3, "image_size": 32}
    same = read_dataset("agedb", "data", options)
    np.testing.assert_array_equal(table.x, same.x)
    np.testing.assert_array_equal(table.split, same.split)

    assert run(*words, "--resume")[0] == 0
    code, text = run("evaluate", "run", "--with", "corruption", "--corruption-samples", "2")
    assert code == 0, text
    shutil.copytree("data", "copy")
    code, text = run("evaluate", "run", "--data", "copy")
    assert code == 0, text
    again = json.loads(Path("run/evaluation-copy/scores.json").read_text())
    scores = json.loads(Path("run/scores.json").read_text())
    assert again["test"]["mae"] == pytest.approx(scores["test"]["mae"])


GAZE_BINS = {"low": [-40.0, -45.0], "high": [10.0, 45.0], "step": [0.5, 1.0]}


def test_gaze_has_the_bins_distance_and_views_of_the_paper(tmp_path: Path) -> None:
    root = dataset_copies.gaze_h5(tmp_path / "data")
    words = ["fit", "mpiifacegaze", "--root", root, *FAST]
    code, text = run(*words, "--head", "dex", "--out", tmp_path / "dex")
    assert code == 0, text
    config = json.loads((tmp_path / "dex" / "config.json").read_text())
    assert {name: config["fit"][name] for name in GAZE_BINS} == GAZE_BINS
    assert config["fit"]["label_distance"] == "angular"
    assert config["model"]["augment"]["flip"] is False
    head = config["model"]["head"]
    assert (head["bins"], head["shift"], head["scale"]) == ([101, 91], [-40, -45], [0.5, 1])
    again = rnc.fit("mpiifacegaze", root=root, out=tmp_path / "door", **FAST_FIELDS, head="dex")
    assert again.config["fit"] == config["fit"]


def test_what_the_user_says_goes_before_what_the_paper_says(tmp_path: Path) -> None:
    root = dataset_copies.gaze_h5(tmp_path / "data")
    own = ["--flip", "--label-distance", "l2", "--step", "2", "--head", "dex"]
    code, text = run("fit", "mpiifacegaze", "--root", root, *FAST, *own, "--out", tmp_path / "r")
    assert code == 0, text
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert (config["fit"]["flip"], config["fit"]["label_distance"]) == (True, "l2")
    assert config["model"]["head"]["bins"] == [26, 46]


@pytest.mark.parametrize("name", DATASETS)
def test_bins_of_a_dataset_span_its_range_and_serve_what_counts_in_bins(name: str) -> None:
    dataset = DATASETS[name]
    l1, dex = (suit_dataset(FitConfig(head=head), name) for head in ("l1", "dex"))
    supcon = suit_dataset(FitConfig(objective="supcon"), name)
    assert (l1.low, l1.high, l1.step) == (None, None, None)
    assert (dex.low, dex.high, dex.step) == (supcon.low, supcon.high, supcon.step)
    if name == "imdb-wiki":  # the paper has none
        assert dex.low is None
        return
    low, high = (np.ravel([getattr(dex, end)]).tolist() for end in ("low", "high"))
    assert list(zip(low, high, strict=True)) == list(dataset.ranges.values())


def test_a_search_among_heads_gives_bins_to_those_that_have_them(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    root = dataset_copies.agedb(tmp_path / "data")
    words = ["search", "agedb", "--root", root, *FAST, "--scheme", "end2end"]
    code, text = run(*words, "--choice", "head=l1,dex", "--out", tmp_path / "study")
    assert code == 0, text
    assert pd.read_csv(tmp_path / "study" / "trials.csv")["state"].tolist() == ["complete"] * 2
    study = json.loads((tmp_path / "study" / "study.json").read_text())
    assert (study["low"], study["high"], study["step"]) == (0.0, 101.0, 1.0)
    best = json.loads((tmp_path / "study" / "best.json").read_text())["config"]
    assert best["high"] == {"l1": None, "dex": 101.0}[best["head"]]


def test_a_run_on_a_dataset_is_evaluated_on_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset_copies.agedb(tmp_path)
    code, text = run("fit", "agedb", "--root", ".", *FAST, "--out", "run")
    assert code == 0, text
    frame = pd.read_csv("agedb.csv")
    frame[frame["split"] == "test"].drop(columns="split").to_csv("faces.csv", index=False)
    code, text = run("evaluate", "run", "--data", "faces.csv", "--images", ".")
    assert code == 0, text
    again = json.loads(Path("run/evaluation-faces/scores.json").read_text())
    scores = json.loads(Path("run/scores.json").read_text())
    assert again["test"]["mae"] == pytest.approx(scores["test"]["mae"])


def test_a_file_wins_over_a_dataset_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.savez("agedb.npz", x=x, y=x[:, 0])
    code, text = run("fit", "agedb.npz", "--out", "run", *FAST[:8])
    assert code == 0, text
    assert "target y" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agedb"], "agedb is a dataset: say with --root DIR where your copy is"),
        (["agedbb"], "does not exist and is neither a file of type .csv, .tsv, "),
        (["agedbb"], "nor a dataset (agedb, imdb-wiki, tuab, mpiifacegaze, skyfinder). Did you "),
        (["photos"], "photos exists, but is neither a file of type .csv, .tsv, "),
        (["gone.csv"], "gone.csv does not exist. Check the path."),
        (["a.csv", "--root", "."], "--root goes with a dataset's name (agedb, "),
        (["a.csv", "--dataset-option", "split=person"], "--dataset-option goes with a dataset's"),
        (["agedb", "--root", ".", "--target", "age"], "--target is for files; agedb has its own"),
        (["agedb", "--root", ".", "--drop-missing"], "--dataset-option takes: split, split_seed"),
        (["agedb", "--root", "."], "holds no copy of AgeDB: looked for the folder AgeDB; found"),
    ],
)
def test_bad_sources_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    code, text = run("fit", *words, "--out", "run", *FAST)
    assert code == 2
    assert message in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("agedb", "spilt=person", "agedb has no option 'spilt'; its options: split, split_seed, "),
        ("agedb", "split", "--dataset-option needs KEY=VALUE; got 'split'"),
        ("agedb", "split_seed=x", "split_seed must be a whole number; got 'x'"),
        ("agedb", "split=pairs", "split must be one of published, person, image, balanced; got"),
        ("agedb", "image_size=64", "image_size: use the flag --image-size instead"),
        ("tuab", "band=0.1,x", "band must be a number; got 'x'"),
        ("skyfinder", "cameras=1,b", "cameras must be a whole number; got 'b'"),
    ],
)
def test_bad_options_of_a_dataset_are_named(
    tmp_path: Path, name: str, option: str, message: str
) -> None:
    words = ["fit", name, "--root", tmp_path, "--dataset-option", option, "--out", tmp_path / "r"]
    code, text = run(*words)
    assert code == 2
    assert message in text
