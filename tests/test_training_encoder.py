"""An encoder that is given stays unchanged; only what comes after it is trained."""

from dataclasses import replace

import pytest

from rnc.training.recipes import build_regressor, train
from training_cases import columns, fit, quick, same, signals, weights


@pytest.mark.parametrize("scheme", ["probe", "finetune", "two-stage"])
def test_an_encoder_may_be_given(scheme: str) -> None:
    config = quick(scheme=scheme, head="mse")
    model, records = fit(columns(), config)
    first = records[0].stage
    source = quick(scheme="end2end" if scheme == "two-stage" else "probe", head="mse")
    trained, _ = fit(columns(), source)
    given = build_regressor(columns(), config)
    rest = list(train(given, columns(), config, encoder_weights=trained.state_dict()))
    assert [replace(record, seconds=0.0) for record in rest] == [
        replace(record, seconds=0.0) for record in records if record.stage != first
    ]
    assert same(weights(given), weights(model))


def test_an_encoder_that_does_not_fit_is_refused() -> None:
    table, config = columns(), quick()
    model = build_regressor(table, config)
    end2end = replace(config, scheme="end2end")
    with pytest.raises(
        ValueError, match=r"scheme probe, finetune or two-stage, .* got scheme end2end"
    ):
        next(train(model, table, end2end, encoder_weights=model.state_dict()))
    with pytest.raises(ValueError, match=r"'input_scale' is missing in them\."):
        next(train(model, table, config, encoder_weights=dict(list(weights(model).items())[2:])))
    other = build_regressor(signals(), quick(encoder="resnet1d10"))
    with pytest.raises(ValueError, match=r"must be those of the same encoder"):
        next(train(model, table, config, encoder_weights=weights(other)))
