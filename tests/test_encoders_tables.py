"""Encoders for tables, and when preset best takes the one that cuts columns into bins."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from rnc.config import FitConfig
from rnc.data.table import Table, table_from_arrays
from rnc.encoders import build_encoder, default_encoder
from rnc.encoders.tables import MOST_BINS, PiecewiseMLP
from rnc.model import Regressor
from rnc.run.export import export_onnx
from rnc.training.recipes import build_regressor, train


def steps_table(n: int = 200) -> Table:
    """A target that jumps up and down along one column, and does not care about two others."""
    x = np.random.default_rng(0).uniform(-2, 2, (n, 3))
    return table_from_arrays(x, np.floor(3 * x[:, 0]) % 2, split_seed=0)


def short(**changes: object) -> FitConfig:
    return FitConfig(**{"epochs": 2, "head_epochs": 1, "device": "cpu", **changes})


def inputs_of(encoder: PiecewiseMLP, rows: torch.Tensor) -> torch.Tensor:
    """What the layers of an encoder see."""
    seen = []
    handle = encoder.mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    encoder(rows)
    handle.remove()
    return seen[0]


def piecewise(value: float, edges: list[float]) -> list[float]:
    """The definition, bin by bin."""
    parts = []
    for low, high in pairwise(edges):
        if high == low or value <= low:
            parts.append(0.0)
        else:
            parts.append(1.0 if value >= high else (value - low) / (high - low))
    return parts


def test_the_layers_see_the_columns_and_how_far_each_bin_is_filled() -> None:
    encoder, rows = PiecewiseMLP(2), torch.tensor(np.random.default_rng(1).normal(size=(40, 2)))
    rows = rows.float()
    encoder.learn_bins(rows)
    new = torch.tensor([[0.3, -0.2], [-9.0, 9.0]])
    expected = [
        [*row, *(part for j in (0, 1) for part in piecewise(row[j], encoder.edges[j].tolist()))]
        for row in new.tolist()
    ]
    torch.testing.assert_close(inputs_of(encoder, new), torch.tensor(expected))


def test_edges_are_quantiles_of_the_training_rows() -> None:
    encoder, rows = PiecewiseMLP(1), torch.arange(33.0)[:, None]
    encoder.learn_bins(rows[torch.randperm(33)])
    assert encoder.edges.tolist() == [[2.0 * i for i in range(MOST_BINS + 1)]]


def test_bins_of_equal_values_say_nothing() -> None:
    encoder = PiecewiseMLP(2)
    encoder.learn_bins(torch.tensor([[0.0, 7.0]] * 9 + [[1.0, 7.0]]))  # rarely 1, and constant
    seen = inputs_of(encoder, torch.tensor([[1.0, 7.0], [0.0, 8.0]]))[:, 2:]
    assert seen.isfinite().all()
    assert (seen[:, MOST_BINS:] == 0).all()
    assert seen[0].max() == 1
    assert (seen[1] == 0).all()


def test_tables_of_many_columns_have_fewer_bins() -> None:
    assert PiecewiseMLP(1000).edges.shape == (1000, 5)
    assert PiecewiseMLP(5000).edges.shape == (5000, 2)


@pytest.mark.parametrize("value", [0.0, 1e30, -3e38])
def test_features_are_finite_far_from_all_bins(value: float) -> None:
    encoder = PiecewiseMLP(2).double()
    assert encoder(torch.full((1, 2), value, dtype=torch.float64)).isfinite().all()


def test_preset_best_learns_bins_from_training_rows_alone() -> None:
    table = steps_table()
    encoder = build_regressor(table, short()).encoder
    assert isinstance(encoder, PiecewiseMLP)
    train_rows = table.x[table.rows("train")]
    np.testing.assert_allclose(encoder.edges[:, 0], train_rows.min(axis=0))
    np.testing.assert_allclose(encoder.edges[:, -1], train_rows.max(axis=0))


@pytest.mark.parametrize("preset", ["paper", "quick"])
def test_other_presets_keep_the_plain_network(preset: str) -> None:
    model = build_regressor(steps_table(), short(preset=preset))
    assert model.config.encoder == default_encoder((3,)) == "mlp"


def test_it_learns_steps_that_a_plain_network_smooths() -> None:
    table, errors = steps_table(400), {}
    for name in ("mlp", "piecewise-mlp"):
        config = FitConfig(scheme="end2end", encoder=name, epochs=30, device="cpu")
        model = build_regressor(table, config)
        errors[name] = list(train(model, table, config))[-1].val_error
    assert errors["piecewise-mlp"] < 0.7 * errors["mlp"]


def test_bins_are_saved_and_a_row_does_not_feel_the_others(tmp_path) -> None:
    table, config = steps_table(), short()
    model = build_regressor(table, config)
    list(train(model, table, config))
    model.save(tmp_path)
    loaded, rows = Regressor.load(tmp_path), table.x[:5]
    assert torch.equal(loaded.encoder.edges, model.encoder.edges)
    np.testing.assert_array_equal(loaded.predict_prepared(rows), model.predict_prepared(rows))
    steady = model.steady()
    together, alone = steady.predict_prepared(rows), steady.predict_prepared(rows[:1])
    np.testing.assert_allclose(together[:1], alone, rtol=1e-6)


def test_weights_from_a_file_bring_their_bins(tmp_path) -> None:
    table = steps_table()
    build_regressor(table, short()).save(tmp_path)
    wider = dataclasses.replace(table, x=2 * table.x)
    model = build_regressor(wider, short(encoder="piecewise-mlp", weights=str(tmp_path)))
    assert torch.equal(model.encoder.edges, Regressor.load(tmp_path).encoder.edges)


def test_the_exported_network_has_the_bins(tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    table = steps_table()
    model = build_regressor(table, short())
    export_onnx(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (exported,) = session.run(["predictions"], {"inputs": table.x[:4]})
    np.testing.assert_allclose(exported, model.predict_prepared(table.x[:4]), atol=1e-5)


def test_a_table_of_one_column_and_few_rows_trains() -> None:
    table = table_from_arrays(np.arange(12.0)[:, None], np.arange(12.0), split_seed=0)
    config = short(epochs=3)
    model = build_regressor(table, config)
    assert all(math.isfinite(record.train_loss) for record in train(model, table, config))
    assert np.isfinite(model.predict_prepared(table.x)).all()


def test_gradients_reach_every_weight() -> None:
    encoder = build_encoder("piecewise-mlp", (4,))
    encoder(torch.randn(8, 4)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
