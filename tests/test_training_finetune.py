"""Fine-tuning starts from a solved head, and keeps the start if no epoch is better."""

import dataclasses
import json
from pathlib import Path

import pytest

from rnc import RnCRegressor
from rnc.config import FitConfig
from rnc.data.table import Table
from rnc.metrics import mae
from rnc.run.fit import fit_run
from rnc.training.recipes import build_regressor, train
from training_cases import columns, fit, quick, same, unnormalised, weights

HARMFUL = quick(scheme="finetune", optimizer="sgd", lr=20.0, lr_decay=1.0, head_epochs=3)
"""At a tenth of this rate, fine-tuning only harms."""


def harmed() -> tuple[list[float], float, float]:
    """Validation errors of fine-tuning, that of what remains, and that of the probe."""
    table = columns()
    rows = table.rows("val")
    model, records = fit(table, HARMFUL, unnormalised())
    probe = dataclasses.replace(HARMFUL, scheme="probe")
    probed, _ = fit(table, probe, unnormalised())
    errors = [record.val_error for record in records if record.stage == "finetune"]
    remains, start = (
        mae(m.predict_prepared(table.x[rows]), table.y[rows]) for m in (model, probed)
    )
    assert same(weights(model), weights(probed))
    return errors, remains, start


def test_what_only_harms_leaves_the_solved_head() -> None:
    errors, remains, start = harmed()
    assert min(errors[1:]) > 1.1 * errors[0]
    assert remains == start == errors[0]


def test_the_last_epoch_stays_where_that_is_asked_for_even_if_it_harms(tmp_path: Path) -> None:
    table, config = columns(), dataclasses.replace(HARMFUL, finetune_keep="last")
    rows = table.rows("val")
    model, records = fit(table, config, unnormalised())
    errors = [record.val_error for record in records if record.stage == "finetune"]
    assert len(errors) == 4
    remains = mae(model.predict_prepared(table.x[rows]), table.y[rows])
    assert remains == errors[-1] > 1.1 * errors[0]
    assert errors == harmed()[0]  # the same training, of which another epoch stays
    list(fit_run(table, config, tmp_path / "run", encoder=unnormalised()))
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["validation_error"] == errors[-1]


def stop(table: Table, config: FitConfig, folder: Path, done: int) -> None:
    """Train until so many epochs of fine-tuning are done, and no further."""
    training = train(build_regressor(table, config, unnormalised()), table, config, folder)
    while (record := next(training)).stage != "finetune" or record.epoch < done:
        pass
    training.close()


@pytest.mark.parametrize("done", [0, 2])
def test_the_last_epoch_stays_after_a_stop(done: int, tmp_path: Path) -> None:
    table, config = columns(), dataclasses.replace(HARMFUL, finetune_keep="last")
    whole, _ = fit(table, config, unnormalised())
    stop(table, config, tmp_path, done)
    model = build_regressor(table, config, unnormalised())
    list(train(model, table, config, tmp_path))
    assert same(weights(model), weights(whole))


def test_auto_chooses_on_validation_only() -> None:
    with pytest.raises(ValueError, match=r"got finetune_keep='last'. Leave that out, or use"):
        quick(scheme="auto", finetune_keep="last")


def test_what_helps_remains() -> None:
    table = columns()
    rows = table.rows("val")
    model, records = fit(table, quick(scheme="finetune", head_epochs=6, lr=0.02), unnormalised())
    errors = [record.val_error for record in records if record.stage == "finetune"]
    assert min(errors) < 0.99 * errors[0]
    assert mae(model.predict_prepared(table.x[rows]), table.y[rows]) == pytest.approx(
        min(errors), rel=1e-9
    )


def test_the_start_is_epoch_0_of_its_records(tmp_path: Path) -> None:
    table = columns()
    records = list(fit_run(table, HARMFUL, tmp_path / "run", encoder=unnormalised()))
    tuned = [record for record in records if record.stage == "finetune"]
    assert [(record.epoch, record.epochs) for record in tuned] == [(i, 3) for i in range(4)]
    assert (tuned[0].lr, tuned[0].gap) == (0.0, None)
    assert tuned[0].train_loss < tuned[1].train_loss
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["validation_error"] == tuned[0].val_error


@pytest.mark.parametrize("done", range(4))
def test_the_start_survives_a_stop_after_any_epoch(done: int, tmp_path: Path) -> None:
    table = columns()
    whole, records = fit(table, HARMFUL, unnormalised())
    stop(table, HARMFUL, tmp_path, done)
    model = build_regressor(table, HARMFUL, unnormalised())
    again = list(train(model, table, HARMFUL, tmp_path))
    assert same(weights(model), weights(whole))
    assert [dataclasses.replace(record, seconds=0) for record in again] == [
        dataclasses.replace(record, seconds=0) for record in records
    ]


def test_without_epochs_fine_tuning_is_the_probe() -> None:
    table = columns()
    config = quick(scheme="finetune", head_epochs=0)
    tuned, records = fit(table, config, unnormalised())
    probed, _ = fit(table, dataclasses.replace(config, scheme="probe"), unnormalised())
    assert [record.epoch for record in records if record.stage == "finetune"] == [0]
    assert same(weights(tuned), weights(probed))


def test_the_estimator_counts_epochs_and_not_the_start() -> None:
    x = columns().x
    model = RnCRegressor(scheme="finetune", epochs=2, head_epochs=3, device="cpu")
    fitted = model.fit(x, 5 * x[:, 0])
    assert (len(fitted.history_), fitted.n_iter_) == (6, 5)
