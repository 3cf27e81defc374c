"""From the name of a result to rows and files, on data that train in seconds."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rnc.analyses.corruption import CORRUPTIONS
from rnc.data import Table, table_from_arrays
from rnc.data.source import DataSource
from rnc.experiments import RESULTS, Data, reproduce, scores
from rnc.experiments.paper import result_names
from rnc.experiments.plan import Plan, Row
from rnc.experiments.published import PAPER_HEADS
from rnc.experiments.store import Store
from rnc.experiments.write import section, table
from rnc.files import write_json
from rnc.run.folder import RunFolder
from training_cases import images

FAST = {
    "encoder": "mlp",
    "batch_size": 16,
    "device": "cpu",
    "step": 25.0,
    "head_solver": "sgd",
    "head_epochs": 1,
}
ON_TABLES = [name for name in RESULTS if name not in ("resnet50", "corruptions", "views")]


def even(n: int) -> Table:
    """Rows of four columns; the target is even over its range."""
    rng = np.random.default_rng(0)
    y = rng.permutation(n) * 100 / n
    x = rng.normal(size=(n, 4)) + [1.0, 0, 0, 0] * y[:, None] / 20
    return table_from_arrays(x, y, subgroup={"town": np.arange(n) % 3})


def tiny() -> Data:
    """Two tables of four columns; the town says nothing of the target."""
    return Data.of_table(even(240), "tiny").with_other(Data.of_table(even(120), "tinier"))


def run(name: str, out: Path, data: Data | Table | str | None = None, **options) -> list[Row]:
    options = {"epochs": 1, "fit": FAST, "say": lambda text: None, "map_method": "pca", **options}
    return reproduce(name, data or tiny(), out, **options)


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> tuple[Path, list[Row], list[str]]:
    out, said = tmp_path_factory.mktemp("all"), []
    return out, run("all", out, say=said.append), said


def test_all_results_train_and_write_their_files(everything) -> None:
    out, rows, _ = everything
    for name in ON_TABLES:
        assert (out / f"{name}.csv").exists(), name
        assert f"## {name}: " in (out / "report.md").read_text()
    found = [row for name in ON_TABLES for row in read(out / f"{name}.csv")]
    assert len(found) == len(rows)
    assert all(np.isfinite(row.values).all() and row.values for row in rows)


def test_all_leaves_out_what_does_not_apply_and_says_why(everything) -> None:
    _, _, said = everything
    assert "resnet50 left out: resnet50 needs images; tiny holds tables." in said
    assert not any(text.startswith("main left out") for text in said)


def test_cost_and_pace_are_said_before_the_work(everything) -> None:
    _, _, said = everything
    assert said[0] == ("main on tiny: 14 runs; left to train: 1 encoder and 15 epochs in all.")
    assert said[1] == "  L1, seed 0"
    assert said[2].startswith("  About ")
    assert " for these 15 epochs, at the pace of the first (" in said[2]


def test_a_second_call_trains_nothing(everything, monkeypatch) -> None:
    out, rows, _ = everything

    def no_training(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("rnc.experiments.store.train_encoder", no_training)
    monkeypatch.setattr("rnc.experiments.store.fit_run", no_training)
    said: list[str] = []
    assert run("all", out, say=said.append) == rows
    assert said[0] == (
        "main on tiny: 14 runs, 14 of them finished before; "
        "left to train: 0 encoders and 0 epochs in all."
    )


def test_methods_that_train_differently_differ(everything) -> None:
    """A method that fell back to another one would repeat its numbers."""
    _, rows, _ = everything
    maes = {(r.method, r.setting): r.values for r in rows if r.score == "MAE"}
    probes = [maes[name, "linear probing"] for name in ("SimCLR", "DINO", "SupCon", "RnC(L1)")]
    assert len(set(probes)) == 4
    ends = [maes[name, ""] for name in ("L1", "LDS+FDS", "LDE", "RankSim", "Ordinal Entropy")]
    assert len(set(ends)) == 5


def test_unseen_is_scored_inside_and_outside(everything) -> None:
    out, _, _ = everything
    rows = {
        (r["method"], r["setting"], r["score"]): float(r["mean"]) for r in read(out / "unseen.csv")
    }
    for kind in ("bi-modal", "tri-modal"):
        whole, seen, unseen = (rows["L1", kind, f"MAE, {p}"] for p in ("all", "seen", "unseen"))
        assert min(seen, unseen) < whole < max(seen, unseen)


def test_main_prints_gains_and_their_average(everything) -> None:
    out, rows, said = everything
    found = {(r.method, r.setting, r.score): r.values[0] for r in rows}
    gain = found["L1", "", "MAE"] - found["RnC(L1)", "", "MAE"]
    assert found["RnC(L1)", "", "gain in MAE"] == gain
    pairs = [(found[h, "", "MAE"], found[f"RnC({h})", "", "MAE"]) for h in PAPER_HEADS.values()]
    average = np.mean([100 * (1 - ours / base) for base, ours in pairs])
    assert found["RnC, average", "", "error lower by, %"] == pytest.approx(average)
    assert any("| RnC, average |  |  |  |  | " in text for text in said)
    assert "RnC, average" in (out / "main.csv").read_text()
    assert "gain on the best other" in (out / "sota.md").read_text()


def test_reports_of_runs_stand_beside_the_tables(everything) -> None:
    out, _, _ = everything
    assert "town" in (out / "spurious.html").read_text()
    assert "The runs: spurious.html" in (out / "spurious.md").read_text()


PICTURED = ("correlation", "unseen", "reduced-data", "spurious", "maps", "pairs")


@pytest.mark.parametrize("name", PICTURED)
def test_figures_are_drawn_beside_their_tables(everything, name) -> None:
    out, _, said = everything
    with Image.open(out / f"{name}.png") as picture:
        assert min(picture.size) > 300
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20
    assert (out / f"{name}.svg").read_text().startswith("<?xml")
    assert f"({name}.png)" in (out / f"{name}.md").read_text()
    assert f"  Picture: {out / name}.png" in said


def test_seeds_give_a_mean_and_a_spread(tmp_path) -> None:
    rows = run("ablation-similarity", tmp_path, seeds=2)
    assert all(len(row.values) == 2 for row in rows)
    first = read(tmp_path / "ablation-similarity.csv")[0]
    assert float(first["mean"]) == pytest.approx(np.mean(rows[0].values), rel=1e-5)
    assert float(first["sd"]) == pytest.approx(np.std(rows[0].values, ddof=1), rel=1e-4)
    assert "2 seeds, 1 epochs" in (tmp_path / "ablation-similarity.md").read_text()


def test_more_seeds_train_only_the_new_ones(tmp_path) -> None:
    said: list[str] = []
    run("std", tmp_path, seeds=1)
    run("std", tmp_path, seeds=2, say=said.append)
    assert said[0].startswith(
        "std on tiny: 2 runs, 1 of them finished before; left to train: 1 enc"
    )


def test_records_are_shown(tmp_path) -> None:
    shown = []
    run("std", tmp_path, seeds=1, show=shown.append)
    assert [record.stage for record in shown] == ["encoder", "head"]


def test_a_larger_encoder_trains(tmp_path) -> None:
    """Table 8, on a few images of 16 pixels; its weights take most of the time to write."""
    fit = {**FAST, "image_size": 16, "head_solver": "exact"}
    rows = run("resnet50", tmp_path, images(40), fit=fit, methods=["RnC(L1)"])
    assert [row.score for row in rows] == ["MAE", "R2"]
    assert all(np.isfinite(row.values).all() and row.values for row in rows)
    (config,) = (tmp_path / "runs").rglob("config.json")
    assert json.loads(config.read_text())["fit"]["encoder"] == "resnet50"


def test_features_that_collapse_are_said_in_their_row(tmp_path, monkeypatch) -> None:
    same = property(lambda folder: np.ones((len(folder.rows), 3), np.float32))
    monkeypatch.setattr(RunFolder, "features", same)
    monkeypatch.setattr(scores, "spearman", lambda finished: float("nan"))
    said: list[str] = []
    rows = run("spurious", tmp_path, say=said.append, map_method="tsne")
    assert {row.note for row in rows if row.score == "Spearman"} == {"features collapsed"}
    assert {row.note for row in rows if row.score == "MAE"} == {""}
    text = (tmp_path / "spurious.md").read_text()
    assert text.count("undefined (features collapsed)") == 2
    assert any("L1: map left out: A map needs features that differ" in line for line in said)


def test_corrupted_images_are_scored_by_severity(tmp_path, monkeypatch) -> None:
    small = images(120)
    large = dataclasses.replace(small, x=small.x.repeat(2, axis=2).repeat(2, axis=3))
    fit = {**FAST, "encoder": "small-cnn", "image_size": 40}
    few = {"pixelate": CORRUPTIONS["pixelate"], "fog": CORRUPTIONS["fog"]}
    monkeypatch.setattr("rnc.analyses.sweep.CORRUPTIONS", few)
    rows = run("corruptions", tmp_path, large, fit=fit)
    files = sorted((tmp_path / "runs").rglob("corruption.json"))
    every = len(large.rows("test"))
    assert [json.loads(file.read_text())["n"] for file in files] == [every, every]
    part = json.loads(files[0].read_text()) | {"n": every - 1, "clean": -1.0}
    write_json(files[0], part)  # of a version that took a sample of the images
    assert run("corruptions", tmp_path, large, fit=fit) == rows
    assert (tmp_path / "corruptions.png").exists()
    assert "Mean over all corruptions" in (tmp_path / "corruptions.html").read_text()
    assert [row.score for row in rows[:6]] == ["clean", *(f"severity {i}" for i in range(1, 6))]
    assert len({row.values for row in rows}) == 12


def test_numbers_of_the_paper_stand_beside_ours(tmp_path) -> None:
    data = dataclasses.replace(tiny(), name="skyfinder")
    rows = run("correlation", tmp_path, data)
    assert [row.paper for row in rows] == [0.822, 0.664, 0.971, 0.87]
    text = (tmp_path / "correlation.md").read_text()
    assert "| method | Spearman | paper | Kendall | paper |" in text
    assert "Paper: Table 1 and Figure 3." in text


@pytest.mark.parametrize("split", ["published", "person"])
def test_numbers_of_the_paper_are_shown_for_the_split_that_they_are_of(
    tmp_path: Path, split: str
) -> None:
    source = DataSource("data", dataset="agedb", dataset_options={"split": split})
    said: list[str] = []
    rows = run("std", tmp_path, Data.of_source(even(240), source), seeds=1, say=said.append)
    assert [row.paper is not None for row in rows if row.score == "MAE"] == [split == "published"]
    named = "std on agedb, split person: " if split == "person" else "std on agedb: "
    assert any(line.startswith(named) for line in said)
    assert ("agedb, split person" in (tmp_path / "std.md").read_text()) == (split == "person")


def test_a_training_that_diverges_is_said_and_left_out(tmp_path, monkeypatch) -> None:
    finish = Store.finish

    def diverge(store, run, show, *, name=None):
        if run.config.scheme == "end2end":
            raise FloatingPointError("The loss became nan.")
        return finish(store, run, show, name=name)

    monkeypatch.setattr(Store, "finish", diverge)
    said: list[str] = []
    rows = run("correlation", tmp_path, say=said.append)
    assert rows[0].values == ()
    assert rows[2].values != ()
    assert "  L1, seed 0, left out: The loss became nan." in said
    assert "| L1 | diverged | diverged |" in (tmp_path / "correlation.md").read_text()


# ---------------------------------------------------------------------------------------- writing


def test_a_table_has_a_column_for_the_paper_only_where_it_has_numbers() -> None:
    rows = [
        Row("L1", "", "MAE", (6.0, 7.0), 6.63),
        Row("L1", "", "R2", (0.8, 0.9)),
        Row("RnC(L1)", "", "MAE", (6.0,), 6.19, 0.08),
    ]
    assert table(rows) == [
        "| method | MAE | paper | R2 |",
        "| --- | --- | --- | --- |",
        "| L1 | 6.500 ± 0.707 | 6.63 | 0.850 ± 0.071 |",
        "| RnC(L1) | 6.000 | 6.19 ± 0.08 |  |",
    ]


def test_a_section_says_what_is_ours() -> None:
    plan = Plan("Number of positives", "The loss is divided by K.", [])
    text = section("ablation-positives", plan, [], data="digits", how="1 seed")
    assert text.startswith("## ablation-positives: Number of positives\n\ndigits, 1 seed. Paper: ")
    assert "Table 6a. The loss is divided by K." in text


# ------------------------------------------------------------------------------------- bad input


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no result 'corrupt'; known are main, .*, all\. Did you"):
        result_names("corrupt")


def test_a_dataset_needs_its_folder(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"got 'agedb'.*Data.of_dataset\(name, root\)"):
        run("main", tmp_path, "agedb")
