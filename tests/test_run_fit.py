"""A run that takes its encoder from another one."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rnc.data import Table
from rnc.files import read_tensors
from rnc.model import read_config
from rnc.run.fit import fit, fit_run
from rnc.training.record import Record
from training_cases import columns, images, quick, same


def run(table: Table, out: Path, taken: Path | None = None, **options: Any) -> list[Record]:
    how = {key: options.pop(key) for key in ("resume", "overwrite") if key in options}
    return list(fit_run(table, quick(**options), out, encoder_from=taken, **how))


def encoder(folder: Path) -> dict[str, torch.Tensor]:
    weights, _ = read_tensors(folder / "model.safetensors")
    return {name: value for name, value in weights.items() if name.startswith("encoder.")}


def history(folder: Path) -> list[dict[str, str]]:
    """The rows of history.csv but their seconds."""
    with (folder / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        del row["seconds"]
    return rows


@pytest.fixture
def first(tmp_path: Path) -> Path:
    run(columns(), tmp_path / "first")
    return tmp_path / "first"


def test_another_head_needs_no_other_encoder(first: Path, tmp_path: Path) -> None:
    records = run(columns(), tmp_path / "mse", first, head="mse")
    assert [record.stage for record in records] == ["head"]
    assert same(encoder(tmp_path / "mse"), encoder(first))
    run(columns(), tmp_path / "alone", head="mse")
    taken, alone = (
        read_tensors(tmp_path / name / "model.safetensors") for name in ("mse", "alone")
    )
    assert same(taken[0], alone[0])


def test_finetune_goes_on_from_it(first: Path, tmp_path: Path) -> None:
    run(columns(), tmp_path / "tuned", first, scheme="finetune", head_epochs=12)
    assert not same(encoder(tmp_path / "tuned"), encoder(first))
    run(columns(), tmp_path / "again", tmp_path / "tuned")
    assert same(encoder(tmp_path / "again"), encoder(tmp_path / "tuned"))


def test_it_may_come_from_other_data(tmp_path: Path) -> None:
    run(images(), tmp_path / "first", encoder="small-cnn")
    run(images(rows=44), tmp_path / "second", tmp_path / "first", encoder="small-cnn")
    assert same(encoder(tmp_path / "second"), encoder(tmp_path / "first"))


@pytest.mark.parametrize("lost", ["checkpoint", "model.safetensors"])
def test_a_finished_run_or_a_trained_encoder_will_do(
    lost: str, first: Path, tmp_path: Path
) -> None:
    before = encoder(first)
    shutil.move(first / lost, tmp_path / lost)
    run(columns(), tmp_path / "second", first)
    assert same(encoder(tmp_path / "second"), before)


def test_what_does_not_fit_is_refused_before_anything_is_written(
    first: Path, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    with pytest.raises(ValueError, match="Use --scheme probe or finetune"):
        run(columns(), second, first, scheme="end2end")
    with pytest.raises(ValueError, match=r"another kind: table there, image here"):
        run(images(), second, first, encoder="small-cnn")
    with pytest.raises(ValueError, match="another preprocessing"):
        run(columns(rows=90), second, first)
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        run(columns(), second, tmp_path / "nothing")
    assert not second.exists()
    shutil.rmtree(first / "checkpoint")
    (first / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no trained encoder yet"):
        run(columns(), second, first)


def test_what_a_kill_left_half_written_goes_when_the_run_goes_on(first: Path) -> None:
    left = [first / ".model.safetensors.ab_12.part", first / "checkpoint" / ".last.xy.part"]
    for path in left:
        path.write_bytes(b"half")
    (first / ".hidden").write_text("the user's")
    run(columns(), first, resume=True)
    assert not any(path.exists() for path in left)
    assert (first / ".hidden").exists()


@pytest.mark.parametrize("options", [{"objective": "own"}, {"batch_size": 1000}], ids=str)
def test_what_cannot_be_trained_replaces_no_run(options: dict[str, Any], first: Path) -> None:
    before = encoder(first)
    with pytest.raises(ValueError, match=r"objective 'own'|A batch needs"):
        run(columns(), first, overwrite=True, **options)
    assert same(encoder(first), before)


def test_a_resumed_run_keeps_its_encoder(first: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    run(columns(), second, first)
    assert run(columns(), second, first, resume=True)
    assert run(columns(), second, resume=True)
    assert read_config(second)["encoder_from"] == str(first)
    shutil.rmtree(second / "checkpoint")  # as a kill before it was written would leave it
    assert [record.stage for record in run(columns(), second, resume=True)] == ["head"]
    run(columns(), tmp_path / "own", seed=1)
    with pytest.raises(ValueError, match="was started with its own encoder"):
        run(columns(), tmp_path / "own", first, resume=True, seed=1)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(first: Path, tmp_path: Path) -> None:
    options = {"scheme": "finetune", "head_epochs": 4}
    run(columns(), tmp_path / "once", first, **options)
    runs = fit_run(columns(), quick(**options), tmp_path / "parts", encoder_from=first)
    for _ in range(3):
        next(runs)
    runs.close()  # type: ignore[attr-defined]
    run(columns(), tmp_path / "parts", resume=True, **options)
    once, parts = (history(tmp_path / name) for name in ("once", "parts"))
    assert once == parts
    assert len(once) == 5
    assert [row["balance"] for row in once] == ["0.0", "", "", "", ""]
    assert same(encoder(tmp_path / "once"), encoder(tmp_path / "parts"))


def test_the_epochs_of_a_given_encoder_are_part_of_the_history(tmp_path: Path) -> None:
    config = quick(head="mse")
    alone = list(fit_run(columns(), config, tmp_path / "alone"))
    weights, _ = read_tensors(tmp_path / "alone" / "model.safetensors")
    records = [record for record in alone if record.stage == "encoder"]
    given = fit_run(
        columns(), config, tmp_path / "given", encoder_weights=weights, encoder_records=records
    )
    assert [record.stage for record in given] == ["head"]
    assert history(tmp_path / "alone") == history(tmp_path / "given")
    again = (read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("alone", "given"))
    assert same(*again)


def test_a_resumed_run_needs_its_source_no_more(first: Path, tmp_path: Path) -> None:
    options = {"scheme": "finetune", "head_epochs": 4}
    run(columns(), tmp_path / "once", first, **options)
    runs = fit_run(columns(), quick(**options), tmp_path / "parts", encoder_from=first)
    next(runs)
    runs.close()  # type: ignore[attr-defined]
    shutil.rmtree(first)
    run(columns(), tmp_path / "parts", resume=True, **options)
    assert same(encoder(tmp_path / "once"), encoder(tmp_path / "parts"))


def test_fit_runs_to_the_end_and_gives_the_run(tmp_path: Path) -> None:
    shown: list[Record] = []
    finished = fit(columns(), quick(), str(tmp_path / "run"), name="mine", show=shown.append)
    assert finished.is_finished
    assert finished.config["name"] == "mine"
    assert finished.records == shown
    assert [record.stage for record in shown][-1] == "head"
    assert finished.scores["test"]["mae"] == pytest.approx(finished.errors.mean())
    with pytest.raises(FileExistsError, match=r"holds a run\. Continue it with `rnc resume"):
        fit(columns(), quick(), tmp_path / "run")
