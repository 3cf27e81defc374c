"""A head of the user's own, with two outputs and an option, works wherever heads are used.

It predicts its uncertainty: u ~ N(m, s^2), with outputs m and log s. Its loss is the negative log
likelihood, and its option `least` bounds s from below.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from rnc import FitConfig, Regressor, RnCRegressor
from rnc.cli import app
from rnc.data import table_from_arrays
from rnc.data.table import Table
from rnc.heads import Head, HeadConfig, head_config
from rnc.heads.registry import HEADS, HeadOption, HeadOptions, HeadSpec
from rnc.metrics import mae
from rnc.run.export import export_onnx
from rnc.run.fit import fit_run
from rnc.training import probe
from rnc.training.probe import solve_head

FAST = {"preset": "quick", "epochs": 2, "head_epochs": 20, "batch_size": 32, "device": "cpu"}


def normal_loss(outputs: Tensor, u: Tensor, options: HeadOptions) -> Tensor:
    mean, log_scale = outputs.unbind(1)
    log_scale = log_scale.clamp(min=math.log(options["least"]), max=20.0)
    return log_scale + ((u - mean) * (-log_scale).exp()).square() / 2


def normal_mean(outputs: Tensor, options: HeadOptions) -> Tensor:
    return outputs[:, 0]


LEAST = HeadOption(1e-3, lambda least: least > 0, "> 0")
NORMAL = HeadSpec(normal_loss, normal_mean, {"least": LEAST}, outputs=2)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    HEADS["normal"] = NORMAL
    yield
    del HEADS["normal"]


def table(n: int = 160) -> Table:
    """Two targets: one with the same noise everywhere, one with noise that grows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    noise = rng.normal(size=(n, 2)) * np.stack([np.ones(n), np.exp(x[:, 2])], axis=1)
    return table_from_arrays(x, np.stack([10 * x[:, 0], 70 + 5 * x[:, 1]], axis=1) + noise)


def test_every_target_has_two_outputs() -> None:
    head = Head(head_config("normal", 4, table().y, options={"least": 0.5}))
    outputs, targets = head(torch.randn(6, 4)), torch.from_numpy(table().y[:6])
    assert outputs.shape == (6, 4)
    assert head.loss(outputs, targets).shape == (6,)
    assert head.decode(outputs).shape == (6, 2)
    shift, scale = (torch.tensor(axis) for axis in (head.config.shift, head.config.scale))
    u, sure = (targets - shift) / scale, outputs[:, 1::2].exp().clamp(min=0.5)
    density = torch.distributions.Normal(outputs[:, ::2], sure).log_prob(u)
    slow = -density.mean(dim=1) - math.log(2 * math.pi) / 2
    torch.testing.assert_close(head.loss(outputs, targets), slow.float())


@pytest.mark.parametrize("solver", ["exact", "sgd"])
def test_the_estimator_trains_it_by_either_solver(solver: str) -> None:
    data = table()
    options = {"head": "normal", "head_options": {"least": 0.01}, "head_solver": solver}
    model = RnCRegressor(**{**FAST, **options}).fit(data.x, data.y)
    assert model.model_.head.config.options == {"least": 0.01}
    guess = mae(data.y * 0 + data.y.mean(axis=0), data.y)
    assert mae(model.predict(data.x), data.y) < 0.6 * guess


def test_the_exact_solver_finds_mean_and_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that say nothing about the target but how widely it scatters."""
    monkeypatch.setattr(probe, "PENALTIES", (1e-6,))
    torch.manual_seed(0)
    side = (torch.arange(2000) % 2).double()
    features = side[:, None]
    targets = (torch.randn(2000).double() * (1 + 4 * side))[:, None]
    head = Head(head_config("normal", 1, targets)).double()
    solve_head(head, features, targets, features, targets)
    mean, log_scale = head(torch.tensor([[0.0], [1.0]]).double()).unbind(1)
    spread = log_scale.exp() * head.config.scale[0]
    assert spread.tolist() == pytest.approx(
        [targets[::2].std().item(), targets[1::2].std().item()], rel=0.02
    )
    assert (mean * head.config.scale[0] + head.config.shift[0]).abs().max() < 0.5


def test_a_run_with_it_is_saved_loaded_resumed_and_exported(tmp_path: Path) -> None:
    data, out = table(), tmp_path / "run"
    config = FitConfig(**FAST, head="normal", head_options={"least": 0.01}, scheme="finetune")
    records = list(fit_run(data, config, out))
    assert records[-1].stage == "finetune"
    model = Regressor.load(out)
    assert model.head.config.options == {"least": 0.01}
    again = list(fit_run(data, config, out, resume=True))
    assert [record.train_loss for record in again] == [record.train_loss for record in records]
    onnxruntime = pytest.importorskip("onnxruntime")
    export_onnx(model, out / "model.onnx")
    session = onnxruntime.InferenceSession(out / "model.onnx")
    predictions, _ = session.run(None, {"inputs": data.x[:5]})
    np.testing.assert_allclose(predictions, model.predict_prepared(data.x[:5]), rtol=1e-4)


def test_the_command_takes_its_option(tmp_path: Path) -> None:
    data = table()
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    words = ["fit", str(tmp_path / "data.npz"), "--preset", "quick", "--epochs", "1"]
    words += ["--batch-size", "32", "--device", "cpu", "--head", "normal"]
    result = CliRunner().invoke(
        app, [*words, "--head-option", "least=0.02", "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 0, result.output
    assert Regressor.load(tmp_path / "run").head.config.options == {"least": 0.02}


def test_a_wrong_option_of_it_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match=r"least must be > 0; got -1\."):
        FitConfig(head="normal", head_options={"least": -1})
    with pytest.raises(
        ValueError, match=r"beta=2 is no option of head 'normal', which has least\."
    ):
        FitConfig(head="normal", head_options={"beta": 2})
    with pytest.raises(ValueError, match=r"bins = 1; got"):
        HeadConfig("normal", 1, (0.0,), (1.0,), (2,))
