"""`rnc reproduce` and `rnc compare` on original downloads: the advice of an error works."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dataset_copies
from rnc.cli import app
from rnc.config import FitConfig
from rnc.experiments import Data
from rnc.experiments.comparison import METHODS, compare, comparison_plan
from rnc.experiments.plan import Plan, Row, Setting, base_config
from rnc.experiments.results import RESULTS
from rnc.experiments.store import encoder_key
from rnc.experiments.write import with_spread
from rnc.methods.registry import OBJECTIVES
from rnc.training.objectives import regularizer_weight
from training_cases import columns

SMALL = ["--image-size", "28", "--encoder", "small-cnn", "--device", "cpu"]
FAST = [*SMALL, "--epochs", "1", "--batch-size", "8", "--seeds", "1"]
SHORT_EEG = ["--dataset-option", "seconds=2", "--dataset-option", "start=0"]


def run(*words: str | Path) -> tuple[int, str]:
    """Exit code and everything that was printed, on one line."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


def first(root: Path, pattern: str) -> Path:
    return min(root.rglob(pattern))


COPIES: dict[str, tuple[Callable[..., Path], str, list[str], str]] = {
    "agedb": (dataset_copies.agedb, "*.jpg", [], "split=person"),
    "imdb-wiki": (dataset_copies.imdb_wiki_csv, "*.jpg", [], "split=balanced"),
    "tuab": (dataset_copies.tuab, "*_s001_t000.edf", SHORT_EEG, "split=official"),
    "mpiifacegaze": (dataset_copies.gazehub, "*.jpg", [], "test_persons=p01,p02"),
    "skyfinder": (dataset_copies.skyfinder, "*_105031.jpg", [], "cameras=65,90"),
}
"""How to make a small copy, a file to cut short, the options to read it, and a further one."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the commands give to `reproduce` and `compare`, which do nothing here."""
    given: dict[str, Any] = {}

    def fake_reproduce(name: str, data: Data, out: Path, **options: Any) -> None:
        given.update(data=data, **options)

    def fake_compare(data: Data, out: Path, **options: Any) -> list[Row]:
        given.update(data=data, **options)
        return [Row("L1", "", "MAE", (1.0,))]

    monkeypatch.setattr("rnc.experiments.paper.reproduce", fake_reproduce)
    monkeypatch.setattr("rnc.experiments.comparison.compare", fake_compare)
    return given


@pytest.mark.parametrize("command", ["reproduce", "compare"])
@pytest.mark.parametrize("name", COPIES)
def test_the_advice_for_a_broken_file_works(
    name: str, command: str, given: dict[str, Any], tmp_path: Path
) -> None:
    make, pattern, options, further = COPIES[name]
    root = make(tmp_path)
    for file in sorted(root.rglob(pattern))[5:6]:
        dataset_copies.cut(file, 0.9 if file.suffix == ".edf" else 0.5)
    start = ["reproduce", "main", "--data", name] if command == "reproduce" else ["compare", name]
    words = [*start, "--root", root, "--image-size", "28", *options]
    code, text = run(*words)
    assert code == 2
    assert "1 of " in text
    assert "leave them out with --skip-bad" in text.lower()
    code, text = run(*words, "--skip-bad")
    assert code == 0, text
    assert len(given["data"].table.skipped) >= 1
    assert given["data"].source.dataset_options["skip_bad"] is True
    code, text = run(*words, "--skip-bad", "--dataset-option", further)
    assert code == 0, text
    option = further.partition("=")[0]
    assert option in given["data"].source.dataset_options


def test_a_table_of_a_copy_with_a_broken_image_is_trained_to_its_end(tmp_path: Path) -> None:
    root = dataset_copies.skyfinder(tmp_path / "sky")
    dataset_copies.cut(sorted(root.rglob("*_105031.jpg"))[2])
    words = ["reproduce", "spurious", "--data", "skyfinder", "--root", root, "--skip-bad"]
    words += ["--dataset-option", "cameras=65,75", "--dataset-option", "hour=none", *FAST]
    words += ["--out", tmp_path / "out"]
    code, text = run(*words, "--map-method", "pca")
    assert code == 0, text
    assert "| method | camera readable | Spearman | MAE |" in text
    maps = sorted((tmp_path / "out" / "runs").rglob("map.json"))
    assert ['"pca"' in file.read_text() for file in maps] == [True, True]
    code, text = run(*words, "--map-method", "tsne")
    assert code == 0, text
    assert ['"tsne"' in file.read_text() for file in maps] == [True, True]


def test_the_second_dataset_of_a_transfer_has_options_of_its_own(
    given: dict[str, Any], tmp_path: Path
) -> None:
    faces = dataset_copies.agedb(tmp_path / "faces")
    more = dataset_copies.imdb_wiki_csv(tmp_path / "more")
    dataset_copies.cut(first(more, "*.jpg"))
    words = ["reproduce", "transfer", "--data", "agedb", "--root", faces, "--image-size", "28"]
    words += ["--other", "imdb-wiki"]
    code, text = run(*words)
    assert code == 2
    assert "imdb-wiki is a dataset: say with --other-root DIR" in text
    words += ["--other-root", more]
    assert run(*words)[0] == 2
    code, text = run(*words, "--skip-bad", "--other-option", "split=person")
    assert code == 0, text
    (_, _), (name, table) = given["data"].pair
    assert (name, len(table.skipped)) == ("imdb-wiki", 1)
    persons = table.subgroup["person"]
    parts = [set(persons[table.split == part]) for part in ("train", "test")]
    assert not parts[0] & parts[1]
    code, text = run(*words[:-4], "--other", "more.csv", "--other-option", "split=person")
    assert code == 2
    assert "--other-option goes with a dataset's name (agedb, " in text


def plan_of(make: Callable[[Setting], Plan], **given: Any) -> Plan:
    data = Data.of_table(columns())
    return make(Setting(data, base_config(data, "paper", None, given), 1, given=given))


def test_options_of_a_head_reach_the_lines_with_that_head() -> None:
    plan = plan_of(RESULTS["main"], head_options={"decode": "class", "sigma": 1.0})
    options = {line.method: line.runs[0].config.head_options for line in plan.lines}
    assert options["OR"] == options["RnC(CORN)"] == {"decode": "class"}
    assert options["DLDL-v2"] == {"sigma": 1.0}
    assert options["L1"] is options["RnC(DEX)"] is None
    assert "predict the number of thresholds passed" in plan.about
    assert "predict the expected class" in plan_of(RESULTS["main"]).about


def test_options_of_methods_reach_the_lines_with_that_method() -> None:
    given = {"temperature": 1.0, "contrast_temperature": 0.2, "regularizer_weight": 100.0}
    plan = plan_of(comparison_plan, original=True, **given)
    configs = {line.method: line.runs[0].config for line in plan.lines}
    assert configs["RnC(L1)"].temperature == 1.0
    assert configs["SupCon"].contrast_temperature == 0.2
    assert [name for name, c in configs.items() if c.regularizer_weight is not None] == [
        "RankSim",
        "Ordinal Entropy",
    ]
    has_original = {name for name, config in configs.items() if config.original}
    assert has_original == {"DINO", "LDS+FDS", "L2CS-Net", "RankSim", "Ordinal Entropy"}


def test_compare_gives_each_line_what_it_has_a_use_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(
        "rnc.experiments.comparison.run_plan", lambda name, plan, *rest, **more: plans.append(plan)
    )
    compare(columns(), tmp_path, fit={"regularizer_weight": 7.0}, seeds=1)
    weights = {line.method: line.runs[0].config.regularizer_weight for line in plans[0].lines}
    assert (weights["RankSim"], weights["L1"]) == (7.0, None)
    with pytest.raises(ValueError, match="head option decode=class has no use in the table 'All m"):
        compare(columns(), tmp_path, fit={"head_options": {"decode": "class"}}, seeds=1)


def test_as_published_heads_share_the_encoder_of_rnc() -> None:
    plan = plan_of(RESULTS["main"], original=True)
    runs = {line.method: line.runs[0] for line in plan.lines}
    assert runs["RnC(DLDL-v2)"].config.original
    assert not runs["RnC(L1)"].config.original
    assert encoder_key(runs["RnC(DLDL-v2)"]) == encoder_key(runs["RnC(L1)"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head-option", "beat=1"], "No head has the option beat; known are beta, "),
        (["--head-option", "decode=class"], "head option decode=class has no use in the table"),
        (["--regularizer-weight", "2"], "regularizer_weight=2.0 has no use in the table 'Spread"),
        (["--contrast-temperature", "0.2"], "or objective with it. Leave it out."),
        (["--temperature", "0"], "temperature must be a positive number; got 0.0."),
        (["--map-method", "som"], "Unknown map method 'som'; known are pca, tsne, umap."),
        (["--weight-decay", "-1"], "weight_decay must be at least 0; got -1.0."),
    ],
)
def test_what_no_line_has_a_use_for_is_refused(
    words: list[str], message: str, tmp_path: Path
) -> None:
    code, text = run("reproduce", "std", *words, "--out", tmp_path)
    assert code == 2
    assert message in text


def test_methods_that_collapse_have_an_undefined_order(tmp_path: Path) -> None:
    assert with_spread(float(np.nan), None) == "undefined"
    root = dataset_copies.gazehub(tmp_path / "gaze")  # faces that are all alike
    words = ["reproduce", "correlation", "--data", "mpiifacegaze", "--root", root, *FAST]
    code, text = run(*words, "--out", tmp_path / "out")
    assert code == 0, text
    collapsed = "undefined (features collapsed)"
    assert f"| L1 | {collapsed} | {collapsed} |" in text


def test_the_page_states_the_weights_and_rates_that_preset_paper_has() -> None:
    page = (Path(__file__).parent.parent / "docs" / "reproduce.md").read_text(encoding="utf-8")
    rows = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[2]
        for line in page.splitlines()
        if line.count(" | ") >= 3
    }
    for name, regularizer in (("RankSim", "ranksim"), ("Ordinal Entropy", "ordinal-entropy")):
        config = FitConfig(preset="paper", scheme="end2end", regularizer=regularizer)
        weight = regularizer_weight("l1", config)
        assert rows[f"weight of {name}"].startswith(f"{weight:g} ")
        assert f"| {name}, {weight:g} |" in page
    paper = FitConfig(preset="paper", batch_size=256)
    assert f"end-to-end rate ({paper.rate(contrast=False) / 10:g})" in rows["fine-tuning"]
    assert (
        f"at the end-to-end rate, {paper.rate(contrast=False):g}"
        in rows["regularization (Table 6c)"]
    )
    rates = {OBJECTIVES[name].lr for name in ("supcon", "simclr", "dino")}
    assert rows["rate of SupCon, SimCLR, DINO"].startswith(f"{rates.pop():g}, ")
    assert not rates


def test_every_method_of_the_comparison_has_a_config() -> None:
    assert len(plan_of(comparison_plan).lines) == len(METHODS) + 5
