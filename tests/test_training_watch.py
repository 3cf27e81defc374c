"""Checks of an encoder during its training: shown to the user, and used to prune trials."""

import dataclasses

import pytest

import training_cases
from rnc.search import Choice
from rnc.search import study as study_file
from rnc.training import loop
from rnc.training.validation import Validation
from search_cases import RATES, record, run
from training_cases import Overflowing, columns, fit, quick, same, weights


def test_an_encoder_is_looked_at_ten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    table, config = columns(), quick(epochs=25, lr=0.01)
    model, records = fit(table, config)
    looks = {r.epoch: r.val_error for r in records if r.stage == "encoder" and r.val_error}
    assert list(looks) == [3, 6, 9, 12, 15, 18, 21, 24]
    deviation = float(table.y[table.rows("val")].std())
    assert looks[24] < looks[3] < deviation
    assert 1 / 3 < looks[24] / records[-1].val_error < 3  # a ridge on the same features
    monkeypatch.setattr(loop, "QUICK_PROBES", 0.1)  # in epoch 250: never
    unseen, records = fit(table, config)
    assert all(r.val_error is None for r in records[:-1])
    assert same(weights(unseen), weights(model))


def test_the_best_of_the_looks_stays_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    table, config = columns(), quick(epochs=20, lr=0.01)
    early, _ = fit(table, dataclasses.replace(config, epochs=20))
    errors = iter([5.0, 4.0, 3.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    seen = []

    def encoder_error(validation: Validation) -> float:
        seen.append(weights(validation.model))
        return next(errors)

    monkeypatch.setattr(Validation, "encoder_error", encoder_error)
    best, _ = fit(table, dataclasses.replace(config, keep="best"))
    kept = {name: value for name, value in weights(best).items() if name.startswith("encoder.")}
    assert len(seen) == 10
    assert same(kept, {name: seen[3][name] for name in kept})
    assert not same(kept, {name: weights(early)[name] for name in kept})


def test_features_that_diverge_are_said_while_the_encoder_trains() -> None:
    with pytest.raises(FloatingPointError, match=r"error of stage 'encoder' became inf in epoch 1"):
        fit(columns(rows=40), quick(), Overflowing())


def test_an_encoder_is_pruned_by_what_a_quick_probe_says(tmp_path, monkeypatch):
    seen = []

    def train(model, table, config, folder=None):
        for epoch in range(1, 11):
            seen.append((config.lr, epoch))
            yield record("encoder", epoch, 10, config.lr / 10)  # below the error of the head
        yield record("head", 1, 1, config.lr)

    monkeypatch.setattr(study_file, "train", train)
    space, base = {"lr": Choice(RATES)}, dataclasses.replace(training_cases.quick(), seed=2)
    trials = run(tmp_path / "s", space, base)
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned
    for trial in pruned:
        assert [epoch for lr, epoch in seen if lr == trial.params["lr"]] == [1, 2]
    complete = [trial for trial in trials if trial.state == "complete"]
    assert [trial.validation_error for trial in complete] == [t.params["lr"] for t in complete]
