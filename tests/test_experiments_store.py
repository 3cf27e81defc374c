"""Runs and encoders are found by config and data, trained once, and continued after a kill."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rnc.config import SPEED_ONLY, FitConfig
from rnc.data import Table
from rnc.experiments import store as module
from rnc.experiments.cost import cost_of
from rnc.experiments.plan import OwnObjective, PlannedRun, canonical
from rnc.experiments.store import Store, encoder_key, run_key
from rnc.files import read_tensors
from rnc.run.fit import fit_run
from rnc.run.folder import RunFolder
from rnc.training.batches import Batches
from training_cases import columns, images, quick, signals

TABLE = columns()


def planned(
    table: Table = TABLE,
    start: PlannedRun | Path | None = None,
    own: OwnObjective | None = None,
    **changes,
) -> PlannedRun:
    return PlannedRun(table, canonical(quick(**changes), table), start, own)


def ignore(record) -> None:
    pass


class Epochs:
    """Counts the epochs that are trained, by their stage."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stages: list[str] = []
        epoch = Batches.epoch

        def counted(batches, stage, *args, **options):
            self.stages.append(stage)
            return epoch(batches, stage, *args, **options)

        monkeypatch.setattr(Batches, "epoch", counted)

    def of(self, stage: str) -> int:
        return self.stages.count(stage)


@pytest.fixture
def epochs(monkeypatch) -> Epochs:
    return Epochs(monkeypatch)


def scores(folder: Path) -> dict:
    return json.loads((folder / "scores.json").read_text())["test"]


# ------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "changes", [{"device": "auto"}, {"precision": "32"}, {"rnc_weight": 3.0}, {"low": 1.0}]
)
def test_a_run_is_the_same_whatever_it_does_not_look_at(changes) -> None:
    assert run_key(planned(**changes)) == run_key(planned())


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"head": "mse"}, {"epochs": 3}, {"similarity": "l1"}, {"clip": 1.0}]
)
def test_a_run_is_another_with_another_config(changes) -> None:
    assert run_key(planned(**changes)) != run_key(planned())


@pytest.mark.parametrize(
    "changes",
    [{"head": "dex"}, {"scheme": "finetune"}, {"head_solver": "sgd"}, {"head": "or", "step": 2.0}],
)
def test_heads_share_an_encoder(changes) -> None:
    assert encoder_key(planned(**changes)) == encoder_key(planned())
    assert run_key(planned(**changes)) != run_key(planned())


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"objective": "supcon"},
        {"temperature": 1.0},
        {"views": 1},
        {"lr": 0.1},
        {"weight_decay": 0.0},
        {"crop": False},
        {"batch_size": 8},
    ],
)
def test_what_shapes_an_encoder_makes_it_another(changes) -> None:
    assert encoder_key(planned(**changes)) != encoder_key(planned())


def test_bins_shape_the_encoder_of_supcon_only() -> None:
    a, b = planned(objective="supcon", step=1.0), planned(objective="supcon", step=2.0)
    assert encoder_key(a) != encoder_key(b)


def test_a_run_that_starts_elsewhere_is_another() -> None:
    other = columns(rows=80)
    assert (
        len(
            {
                run_key(planned()),
                run_key(planned(start=planned(other))),
                run_key(planned(start=planned())),
            }
        )
        == 3
    )


def test_runs_of_the_first_version_are_still_found() -> None:
    """Keys that version 0.1 gave; a change of them would train finished runs again."""
    supcon = planned(objective="supcon", step=1.0, seed=2)
    assert (run_key(planned()), encoder_key(planned())) == ("faa4ede61e147a4f", "adf2b46251541113")
    assert run_key(planned(scheme="end2end", head="mse")) == "65573c070e77ab99"
    assert (run_key(supcon), encoder_key(supcon)) == ("9bd1ce5deae48100", "d32e36f68c683a67")
    assert run_key(planned(start=planned(scheme="end2end"))) == "3942fe7328391627"


@pytest.mark.parametrize(
    "changes",
    [{"erase": 0.5}, {"average": 0.9}, {"warm_up": 1}, {"balance": 0.5}, {"weight_decay": 5e-4}],
)
def test_a_part_of_the_recipe_makes_a_run_another(changes) -> None:
    assert run_key(planned(**changes)) != run_key(planned())
    is_shared = "balance" in changes
    assert (encoder_key(planned(**changes)) == encoder_key(planned())) == is_shared


def test_what_predictions_average_over_leaves_the_encoder_as_it_is() -> None:
    table = images()
    plain, mirrored = planned(table), planned(table, test_views="mirror")
    assert run_key(plain) != run_key(mirrored)
    assert encoder_key(plain) == encoder_key(mirrored)


def test_views_make_a_run_another_where_they_change_it() -> None:
    ends = {"scheme": "end2end"}
    assert run_key(planned(**ends)) == run_key(planned(views=1, **ends))
    assert run_key(planned(**ends)) != run_key(planned(views=2, **ends))
    best = {"preset": "best", **ends}  # which shows rows of small tables once
    assert run_key(planned(views=1, **best)) == run_key(planned(**best))
    pictures = images()
    assert run_key(planned(pictures, views=2, **best)) == run_key(planned(pictures, **best))
    assert run_key(planned(views=2)) == run_key(planned())
    tuned = {"scheme": "finetune"}  # two views fill its batches with as many samples
    assert run_key(planned(views=2, **tuned)) != run_key(planned(**tuned))
    assert encoder_key(planned(views=2, **tuned)) == encoder_key(planned(**tuned))


def test_runs_of_an_older_version_are_read_as_they_were_meant() -> None:
    new = ("erase", "average", "warm_up", "test_views", "balance")
    older = {
        "views": 2,
        "crop": False,
        "crop_scale": 0.2,
        "preset": "quick",
        "head_solver": "exact",
    }
    fields = {k: v for k, v in (quick().to_json() | older).items() if k not in new}
    table = images()
    read = [FitConfig.from_json({**fields, "scheme": scheme}) for scheme in ("end2end", "probe")]
    for config in read:
        same = planned(table, scheme=config.scheme, crop=False)
        assert run_key(PlannedRun(table, canonical(config, table))) == run_key(same)
        assert canonical(config, table).head_views == 1


def later_field(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make a field one that FitConfig got after the first keys were made."""
    fields = module._FIRST_FIELDS.split()
    fields.remove(name)
    monkeypatch.setattr(module, "_FIRST_FIELDS", " ".join(fields))


def test_a_new_field_of_the_config_changes_keys_only_where_it_is_set(monkeypatch) -> None:
    plain, clipped = planned(), planned(clip=1.0)
    later_field(monkeypatch, "clip")
    assert run_key(plain) != run_key(clipped)
    assert encoder_key(plain) != encoder_key(clipped)
    assert "clip" not in module._key_fields(plain.config, SPEED_ONLY)
    assert module._key_fields(clipped.config, SPEED_ONLY)["clip"] == 1.0


# ------------------------------------------------------------------------------------------- runs


def test_heads_train_their_encoder_once(tmp_path, epochs) -> None:
    store = Store(tmp_path)
    folders = [store.finish(planned(head=head), ignore) for head in ("l1", "mse", "huber")]
    assert epochs.of("encoder") == 2
    assert len(set(folders)) == 3
    assert len(list((tmp_path / "encoders").iterdir())) == 1


@pytest.mark.parametrize("scheme", ["probe", "finetune", "two-stage"])
def test_a_shared_first_stage_changes_nothing(tmp_path, scheme) -> None:
    one = planned(head="mse", scheme=scheme)
    for _ in fit_run(one.table, one.config, tmp_path / "alone"):
        pass
    store = Store(tmp_path)
    store.finish(planned(head="l1"), ignore)
    shared = store.finish(one, ignore)
    assert scores(shared) == scores(tmp_path / "alone")
    assert [r.train_loss for r in RunFolder(shared).records] == [
        r.train_loss for r in RunFolder(tmp_path / "alone").records
    ]


def test_two_stages_train_their_first_once(tmp_path, epochs) -> None:
    store = Store(tmp_path)
    store.finish(planned(head="mse", scheme="end2end"), ignore)
    store.finish(planned(head="mse", scheme="two-stage"), ignore)
    assert epochs.of("end2end") == 2


def test_a_finished_run_is_not_trained_again(tmp_path, epochs) -> None:
    first = Store(tmp_path).finish(planned(), ignore)
    trained = len(epochs.stages)
    shown = []
    assert Store(tmp_path).finish(planned(), shown.append) == first
    assert (len(epochs.stages), shown) == (trained, [])


@pytest.mark.parametrize("at", [1, 3, 4, 5])
def test_a_kill_repeats_no_epoch(tmp_path, epochs, at) -> None:
    wanted = planned(scheme="finetune", epochs=3, head_epochs=2)
    seen = []

    def stop(record) -> None:
        seen.append(record)
        if len(seen) == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).finish(wanted, stop)
    folder = Store(tmp_path).finish(wanted, ignore)
    assert (epochs.of("encoder"), epochs.of("finetune")) == (3, 2)
    for _ in fit_run(wanted.table, wanted.config, tmp_path / "alone"):
        pass
    assert scores(folder) == scores(tmp_path / "alone")


def test_only_new_epochs_are_shown(tmp_path) -> None:
    store = Store(tmp_path)
    store.finish(planned(), ignore)
    shown = []
    store.finish(planned(head="mse"), shown.append)
    assert [record.stage for record in shown] == ["head"]


def test_a_transfer_keeps_the_encoder_of_its_start(tmp_path) -> None:
    store, other = Store(tmp_path), columns(rows=80)
    for start in (planned(), planned(scheme="end2end")):
        folder = store.finish(planned(other, start), ignore)
        there = read_tensors(folder / "model.safetensors")[0]
        path = store.folder(start) / "model.safetensors"
        if start.config.scheme == "probe":
            path = next((tmp_path / "encoders").glob("*/checkpoint/encoder.safetensors"))
        here = read_tensors(path)[0]
        encoder = [key for key in here if key.startswith("encoder.")]
        assert encoder
        assert all(torch.equal(here[key], there[key]) for key in encoder)


def test_a_transfer_keeps_the_scale_of_its_signals(tmp_path) -> None:
    table = signals()
    louder = dataclasses.replace(table, x=table.x * 2)
    config = {"encoder": "resnet1d24", "epochs": 1, "batch_size": 16}
    folder = Store(tmp_path).finish(planned(louder, planned(table, **config), **config), ignore)
    scale = read_tensors(folder / "model.safetensors")[0]["input_scale"]
    wanted = table.x[table.rows("train")].std(axis=(0, 2))
    np.testing.assert_allclose(scale[:, 0].numpy(), wanted, rtol=1e-4)


def test_a_run_may_start_from_a_run_folder(tmp_path) -> None:
    for _ in fit_run(TABLE, quick(), tmp_path / "run"):
        pass
    store, other = Store(tmp_path), columns(rows=80)
    run = planned(other, tmp_path / "run", head="mse")
    there = read_tensors(store.finish(run, ignore) / "model.safetensors")[0]
    here = read_tensors(tmp_path / "run" / "model.safetensors")[0]
    encoder = [key for key in here if key.startswith("encoder.")]
    assert all(torch.equal(here[key], there[key]) for key in encoder)
    assert [record.stage for record in RunFolder(store.folder(run)).records] == ["head"]
    (tmp_path / "run").rename(tmp_path / "moved")
    assert store.is_finished(planned(other, tmp_path / "moved", head="mse"))


def test_a_run_that_is_finished_elsewhere_is_taken_from_there(tmp_path, epochs) -> None:
    for _ in fit_run(TABLE, quick(), tmp_path / "run"):
        pass
    trained = len(epochs.stages)
    store = Store(tmp_path / "out", known={run_key(planned()): tmp_path / "run"})
    assert store.finish(planned(), ignore) == tmp_path / "run"
    assert len(epochs.stages) == trained


def squares(features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return features.square().mean()


def test_an_objective_of_ones_own_is_trained_once_a_call_and_again_by_the_next(
    tmp_path, epochs
) -> None:
    own = OwnObjective("Squares", squares)
    probe = planned(objective="own", own=own)
    tuned = planned(objective="own", own=own, scheme="finetune")
    for calls in (1, 2):  # the function may have changed in between
        store = Store(tmp_path)
        assert not store.is_finished(probe)
        assert not store.has_encoder(probe)
        store.finish(probe, ignore)
        store.finish(tuned, ignore)
        assert store.is_finished(probe)
        assert epochs.of("encoder") == 2 * calls
    other = planned(objective="own", own=OwnObjective("Cubes", squares))
    assert run_key(other) != run_key(probe)
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_weights_may_be_dropped_when_scores_are_all_that_is_needed(tmp_path, epochs) -> None:
    store = Store(tmp_path)
    store.finish(planned(), ignore)
    store.drop_weights()
    assert not list(tmp_path.rglob("*.safetensors"))
    trained = len(epochs.stages)
    store.finish(planned(), ignore)
    assert len(epochs.stages) == trained


def test_finished_runs_leave_no_checkpoint(tmp_path) -> None:
    folder = Store(tmp_path).finish(planned(), ignore)
    assert not (folder / "checkpoint").exists()
    names = sorted(path.name for path in tmp_path.rglob("checkpoint/*"))
    assert names == ["encoder.safetensors"]


def test_a_run_of_another_config_in_a_folder_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "run_key", lambda run: "same")
    store = Store(tmp_path)
    store.finish(planned(scheme="end2end"), ignore)
    (tmp_path / "runs" / "same" / "scores.json").unlink()
    with pytest.raises(ValueError, match=r"lr: not given then, 0\.1 now"):
        store.finish(planned(scheme="end2end", lr=0.1), ignore)


# ------------------------------------------------------------------------------------------- cost


def test_cost_is_what_is_left(tmp_path) -> None:
    store = Store(tmp_path)
    runs = [planned(), planned(head="mse"), planned(scheme="end2end")]
    before = cost_of(runs, store)
    assert (before.runs, before.finished, before.encoders, before.epochs) == (
        3,
        0,
        1,
        2 + 2 + 1 + 1,
    )
    store.finish(runs[0], ignore)
    after = cost_of(runs, store)
    assert (after.runs, after.finished, after.encoders, after.epochs) == (3, 1, 0, 2 + 1)
    assert str(after) == (
        "3 runs, 1 of them finished before; left to train: 0 encoders and 3 epochs in all"
    )


def test_the_run_that_another_starts_from_counts(tmp_path) -> None:
    start = planned(columns(rows=80), scheme="end2end")
    assert cost_of([planned(start=start)], Store(tmp_path)).runs == 2


# ---------------------------------------------------------------------------------------- subsets
