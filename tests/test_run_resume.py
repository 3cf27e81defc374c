"""A run is resumed from its folder alone, also for more epochs than it was started with."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evaluation_cases import FAST, data_of, fitted, houses, with_config
from rnc.config import FitConfig
from rnc.files import read_tensors
from rnc.run.fit import check_before_data, fit_run, resume_run
from rnc.run.folder import RunFolder
from rnc.training.checkpoint import LAST_FILE
from rnc.training.optimizers import learning_rate
from training_cases import columns, quick, same, unnormalised

SCHEMES = ("probe", "finetune", "end2end", "two-stage", "auto")


def epochs_of(run: RunFolder, stage: str) -> list[int]:
    return [record.epoch for record in run.records if record.stage == stage]


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "model.safetensors")[0]


def test_a_killed_run_goes_on_from_its_folder_alone(tmp_path: Path) -> None:
    source, whole, parts = houses(tmp_path / "houses.csv"), tmp_path / "whole", tmp_path / "parts"
    config = with_config(scheme="finetune", epochs=3)
    fitted(whole, source, config)
    data = data_of(source)
    started = fit_run(data.read(224), config, parts, data=data, command="rnc fit x", name="mine")
    list(islice(started, 2))
    started.close()
    list(resume_run(parts))
    assert same(weights_in(whole), weights_in(parts))
    assert RunFolder(parts).config["name"] == "mine"
    assert RunFolder(parts).config["command"] == "rnc fit x"
    assert RunFolder(parts).scores["test"] == RunFolder(whole).scores["test"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_that_an_older_preset_started_keeps_its_recipe(tmp_path, monkeypatch, scheme) -> None:
    source, whole, parts = houses(tmp_path / "houses.csv"), tmp_path / "whole", tmp_path / "parts"
    config = FitConfig(scheme=scheme, epochs=3, device="cpu")
    with monkeypatch.context() as older:
        older.setattr("rnc.config.presets.MANY_TABLE_ROWS", 0)  # two views, temperature 2
        fitted(whole, source, config)
        data = data_of(source)
        started = fit_run(data.read(224), config, parts, data=data)
        list(islice(started, 2))
        started.close()
    list(resume_run(parts))
    assert same(weights_in(whole), weights_in(parts))
    assert RunFolder(parts).config["resolved"]["views"] == 2


def test_a_finished_run_that_is_resumed_stays_the_same(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", houses(tmp_path / "houses.csv"))
    before, config = weights_in(run.path), run.config
    list(resume_run(run.path, epochs=2))
    assert same(before, weights_in(run.path))
    assert RunFolder(run.path).config == config  # and so the learning rate is still the preset's


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", houses(tmp_path / "houses.csv"))
    left = [run.path / ".tmpAb3dE9", run.path / "analyses" / ".pca.json.0123abcd.part"]
    for path in left:  # the first is of safetensors, which has names of its own
        path.write_bytes(b"half")
    files = {path for path in run.path.rglob("*") if path not in left}
    list(resume_run(run.path))
    assert set(run.path.rglob("*")) == files


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_finished_run_goes_on_to_more_epochs(scheme: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = fitted(out, houses(tmp_path / "houses.csv"), with_config(scheme=scheme, epochs=3))
    before = run.scores["validation_error"]
    records = list(resume_run(out, epochs=7, head_epochs=4))
    after = RunFolder(out)
    assert (after.fit.epochs, after.fit.head_epochs) == (7, 4)
    first = {"probe": "encoder", "finetune": "encoder", "auto": "encoder"}.get(scheme, "end2end")
    assert epochs_of(after, first) == list(range(1, 8))
    assert {r.epochs for r in records if r.stage == first} == {7}
    fourth = next(r for r in after.records if r.stage == first and r.epoch == 4)
    assert fourth.lr == pytest.approx(learning_rate(4, 7, 1e-3, 0.1))
    if scheme in ("finetune", "auto"):
        stage = "finetune" if scheme == "finetune" else "finetune/finetune"
        assert epochs_of(after, stage) == list(range(5))
    assert after.scores["validation_error"] < 1.5 * before
    assert same(weights_in(out), after.model.cpu().state_dict())


def test_the_optimizer_goes_on_where_the_checkpoint_has_it(tmp_path: Path) -> None:
    """Going on from 3 to 6 epochs at a constant rate is training for 6."""
    source = houses(tmp_path / "houses.csv")
    for scheme in ("probe", "end2end"):
        steady = {"scheme": scheme, "lr_decay": 1.0}
        whole = fitted(tmp_path / f"{scheme}-6", source, with_config(epochs=6, **steady))
        parts = fitted(tmp_path / f"{scheme}-3", source, with_config(epochs=3, **steady))
        list(resume_run(parts.path, epochs=6))
        assert same(weights_in(whole.path), weights_in(parts.path))


def test_without_the_optimizer_it_goes_on_from_the_best_weights(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", houses(tmp_path / "houses.csv"), with_config(scheme="end2end"))
    best = min(record.val_error or 0 for record in run.records)
    (run.path / "checkpoint" / LAST_FILE).unlink()
    list(resume_run(run.path, epochs=4))
    assert epochs_of(RunFolder(run.path), "end2end") == [1, 2, 3, 4]
    assert RunFolder(run.path).scores["validation_error"] <= best


def test_going_on_that_is_killed_goes_on_again(tmp_path: Path) -> None:
    source = houses(tmp_path / "houses.csv")
    whole, parts = fitted(tmp_path / "whole", source), fitted(tmp_path / "parts", source)
    list(resume_run(whole.path, epochs=6))
    going = resume_run(parts.path, epochs=6)
    list(islice(going, 4))
    going.close()
    assert not RunFolder(parts.path).is_finished
    list(resume_run(parts.path))
    assert same(weights_in(whole.path), weights_in(parts.path))


def test_fewer_epochs_than_were_trained_are_refused(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", houses(tmp_path / "houses.csv"))
    message = r"has trained 2 epochs, and --epochs asks for 1\. Give 2 or more"
    with pytest.raises(ValueError, match=message):
        list(resume_run(run.path, epochs=1))
    assert run.is_finished


def test_what_the_folder_does_not_hold_is_said(tmp_path: Path) -> None:
    list(fit_run(columns(), quick(), tmp_path / "table"))
    with pytest.raises(ValueError, match="does not say where its data are"):
        list(resume_run(tmp_path / "table"))
    list(fit_run(columns(), quick(), tmp_path / "own", encoder=unnormalised()))
    with pytest.raises(ValueError, match=r"of Python code.*rnc\.fit\(\.\.\., resume=True\)"):
        list(resume_run(tmp_path / "own"))
    run = fitted(tmp_path / "run", houses(tmp_path / "houses.csv"))
    houses(tmp_path / "houses.csv", seed=1)
    with pytest.raises(ValueError, match="have changed since it was started"):
        list(resume_run(run.path))


# ----------------------------------------------------------------------- before data are read


@pytest.mark.parametrize(
    ("changes", "how", "message"),
    [
        ({"encoder": "resnet19"}, {}, "resnet18"),
        ({"device": "cuda"}, {}, "torch sees no GPU"),
        ({}, {"resume": True}, "holds no run to continue"),
        ({}, {"encoder_from": Path("nowhere")}, "nowhere"),
        ({"scheme": "end2end"}, {"encoder_from": Path("nowhere")}, "--scheme probe or finetune"),
    ],
    ids=str,
)
def test_mistakes_are_told_before_data_are_read(
    changes: dict[str, Any], how: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((ValueError, OSError), match=message):
        check_before_data(with_config(**changes), tmp_path / "new", **how)


def test_an_out_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file is a file\. Choose another --out"):
        check_before_data(FAST, tmp_path / "file" / "run")
    with pytest.raises(OSError, match="is a file"):
        check_before_data(FAST, tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(FileExistsError, match="holds no run"):
        check_before_data(FAST, tmp_path / "full")
    check_before_data(FAST, tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()


def test_a_small_table_needs_no_options(tmp_path: Path) -> None:
    for rows in (10, 50):
        frame = houses(tmp_path / "houses.csv", n=rows)
        config = with_config(batch_size=None, epochs=3)
        run = fitted(tmp_path / f"run{rows}", frame, config)
        assert np.isfinite(run.scores["test"]["mae"])
