"""The queue and gradient caching: their results, their memory, and methods without them."""

import dataclasses
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import MixedPrecision
from torch import Tensor, nn

from rnc import RnCRegressor, rnc_loss
from rnc.config import FitConfig
from rnc.files import read_tensors
from rnc.methods.objective import (
    BatchLabels,
    FeatureObjective,
    MethodOptions,
    MethodSetup,
    Objective,
)
from rnc.methods.projection import ProjectionHead
from rnc.methods.queue import QueuedLoss
from rnc.training.advice import data_warnings
from rnc.training.caching import cached_backward
from rnc.training.loop import Stage, make_fabric
from rnc.training.recipes import build_regressor, train
from rnc.training.speed import is_graphed
from training_cases import columns, fit, normalised, quick, same, unnormalised


def batch(rows: int = 11, views: int = 2) -> tuple[Tensor, BatchLabels]:
    return torch.randn(rows, views, 4), BatchLabels(torch.randn(rows, 1).double())


def contrast(encoder: nn.Module, projected: bool = False) -> Objective:
    torch.manual_seed(3)
    projection = ProjectionHead(8, out=5) if projected else None
    return FeatureObjective(encoder, rnc_loss, projection)


def gradients(module: nn.Module) -> list[Tensor]:
    grads = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    return [grad for grad in grads if grad is not None]


# ------------------------------------------------------------------------------ gradient caching


@pytest.mark.parametrize("chunk", [1, 4, 10])
@pytest.mark.parametrize("projected", [False, True])
def test_a_cached_gradient_is_that_of_the_whole_batch(chunk: int, projected: bool) -> None:
    objective, (views, labels) = contrast(unnormalised(), projected), batch()
    sizes: list[int] = []
    objective.encoder.register_forward_hook(lambda m, rows, out: sizes.append(len(rows[0])))
    expected = objective(views, labels)
    (expected / 3).backward()
    wanted, sizes[:] = gradients(objective), []
    fabric = make_fabric(quick())
    loss = cached_backward(fabric, objective, views, labels, chunk=chunk, times=3)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradients(objective), wanted, rtol=1e-5, atol=1e-7)
    assert len(wanted) == (7 if projected else 3)
    assert max(sizes) <= 2 * chunk
    assert sum(sizes) == 2 * views[:, :, 0].numel()  # every view twice


def by_hand(objective: Objective, views: Tensor, labels: BatchLabels, chunks: int) -> Tensor:
    """All chunks in memory, each encoded by itself."""
    features = [objective.features(part) for part in views.tensor_split(chunks)]
    return objective.loss_of(torch.cat(features), labels)


def test_both_passes_drop_the_same_features_and_count_the_batch_once() -> None:
    """With dropout and batch normalisation it is the gradient of an encoder that sees chunks."""
    plain, cached = contrast(normalised()), contrast(normalised())
    (views, labels), fabric = batch(12), make_fabric(quick())
    for step in range(2):
        torch.manual_seed(step)
        expected = by_hand(plain, views, labels, chunks=3)
        expected.backward()
        after = torch.rand(1)
        torch.manual_seed(step)
        loss = cached_backward(fabric, cached, views, labels, chunk=4)
        assert torch.equal(torch.rand(1), after)  # as if the batch had been seen once
        assert torch.equal(loss, expected)
        torch.testing.assert_close(gradients(cached), gradients(plain), rtol=1e-5, atol=1e-7)
        assert same(cached.encoder.state_dict(), plain.encoder.state_dict())
    assert cached.encoder[1].num_batches_tracked == 6


def test_without_the_random_state_the_gradient_would_be_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (views, labels), fabric = batch(), make_fabric(quick())
    found = []
    for put_back in (None, lambda state, device: None):
        if put_back is not None:
            monkeypatch.setattr("rnc.training.caching._put_back", put_back)
        objective = contrast(normalised())
        torch.manual_seed(0)
        cached_backward(fabric, objective, views, labels, chunk=4)
        found.append(gradients(objective)[0])
    assert not torch.allclose(*found, rtol=1e-3)


CASES: dict[str, dict[str, Any]] = {
    "rnc": {},
    "accumulated, averaged, clipped": {"accumulate": 2, "average": 0.9, "clip": 0.5},
    "supcon": {"objective": "supcon", "step": 20.0},
    "simclr": {"objective": "simclr"},
    "end2end, two passes": {"scheme": "end2end", "preset": "best", "encoder": "mlp"},
    "fine-tuned, fds": {"scheme": "finetune", "regularizer": "fds", "step": 10.0},
    "regularize, queue, mixed": {"scheme": "regularize", "queue": 30, "c_mixup": True},
    "plain views": {"views": 0, "queue": 20},
}


@pytest.mark.parametrize("case", CASES)
def test_training_in_chunks_is_training_on_whole_batches(case: str) -> None:
    table, changes = columns(), {"optimizer": "sgd", "lr": 0.01, "precision": "32"} | CASES[case]
    whole, records = fit(table, quick(**changes), unnormalised())
    chunked, others = fit(table, quick(**changes, chunk=5), unnormalised())
    assert [r.train_loss for r in others] == pytest.approx(
        [r.train_loss for r in records], rel=1e-4
    )
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(
            chunked.state_dict()[name], value, rtol=1e-3, atol=1e-4, msg=name
        )


@pytest.mark.parametrize("precision", ["bf16", "16"])
def test_chunks_and_a_queue_with_mixed_precision(
    precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU Fabric would take bfloat16 for 16, so it is given the scaler that a GPU gets."""

    def fabric(**options: Any) -> Fabric:
        scales.append(MixedPrecision("16-mixed", "cpu"))
        return Fabric(**{**options, "precision": None}, plugins=scales[-1])

    scales: list[MixedPrecision] = []
    if precision == "16":
        monkeypatch.setattr("lightning.fabric.Fabric", fabric)
    changes = {"precision": precision, "queue": 16, "epochs": 3, "optimizer": "sgd", "lr": 0.01}
    for same_step in ({}, {"clip": 0.5, "accumulate": 2}):
        whole, records = fit(columns(), quick(**changes, **same_step), unnormalised())
        chunked, others = fit(columns(), quick(**changes, **same_step, chunk=4), unnormalised())
        losses = ([record.train_loss for record in found[:3]] for found in (others, records))
        assert next(losses) == pytest.approx(next(losses), rel=1e-2)
        for name, value in chunked.encoder.state_dict().items():
            expected = whole.encoder.state_dict()[name]
            torch.testing.assert_close(value, expected, rtol=0.02, atol=5e-3, msg=name)
    assert len({scale.state_dict()["scale"] for scale in scales}) <= 1


def test_a_chunk_of_the_batch_or_more_is_the_whole_batch() -> None:
    table = columns()
    whole, chunked = (fit(table, quick(chunk=c), normalised())[0] for c in (0, 16))
    assert same(whole.state_dict(), chunked.state_dict())


def test_a_compiled_encoder_sees_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes a minute, so that a wrapper stands for it."""
    seen: list[tuple[int, bool]] = []

    def compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
        def encode(rows: Tensor) -> Tensor:
            seen.append((len(rows), torch.is_grad_enabled()))
            features: Tensor = module(rows)
            return features

        return encode

    monkeypatch.setattr("rnc.methods.objective.compiled", compiled)
    monkeypatch.setattr("rnc.training.batches.Batches.compile", lambda self: None)
    fit(columns(), quick(compile="on", chunk=8, epochs=1), unnormalised())
    assert set(seen) == {(16, True)}  # one shape and one mode, so that there is one compiled code


# ------------------------------------------------------------------------------------- the queue


def queued(queue: int, views: int = 1) -> QueuedLoss:
    setup = MethodSetup(
        d=3, targets=torch.zeros(9, 1), updates=1, options=MethodOptions(queue=queue), views=views
    )
    return QueuedLoss(rnc_loss, setup)


@pytest.mark.parametrize("size", [1, 4, 7, 20])
def test_the_queue_holds_the_last_samples(size: int) -> None:
    loss, earlier = queued(size, views=2), [torch.empty(0, 2, 3)]
    targets = [torch.empty(0, 1).double()]
    for rows in (4, 4, 3, 9):
        features, labels = torch.randn(rows, 2, 3, requires_grad=True), torch.randn(rows, 1)
        before = torch.cat(earlier)[-size:].flatten(0, 1), torch.cat(targets)[-size:]
        expected = rnc_loss(
            features, labels, queue=(before[0], before[1].repeat_interleave(2, dim=0))
        )
        torch.testing.assert_close(loss(features, labels), expected)
        earlier.append(features.detach())
        targets.append(labels.double())
    assert not loss.kept[0].requires_grad
    kept = torch.cat(earlier)[-size:].flatten(0, 1)
    assert {tuple(row) for row in loss.kept[0].tolist()} == {tuple(row) for row in kept.tolist()}


@pytest.mark.parametrize("changes", [{}, {"chunk": 5}, {"scheme": "regularize"}])
def test_a_queue_goes_on_to_the_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    table, config = columns(), quick(queue=50, epochs=4, **changes)
    records = []
    for epochs, folder in ((9, "whole"), (2, "parts"), (9, "parts")):
        model = build_regressor(table, config, normalised())
        running = train(model, table, config, tmp_path / folder)
        found = list(islice(running, epochs))
        running.close()  # type: ignore[attr-defined]
        records.append([dataclasses.replace(record, seconds=0.0) for record in found])
        if epochs == 2:
            tensors, _ = read_tensors(tmp_path / "parts" / "checkpoint" / "last.safetensors")
            kept = [tuple(v.shape) for k, v in tensors.items() if k.endswith(".features")]
            assert kept == [(100, 8)]  # 50 samples in two views
    assert records[2] == records[0]
    weights = [read_tensors(path)[0] for path in sorted(tmp_path.glob("*/checkpoint/*er.safete*"))]
    assert len(weights) == (0 if changes.get("scheme") else 2)
    assert not weights or same(*weights)


def test_a_queue_changes_the_loss_but_not_what_comes_before_it() -> None:
    table = columns()
    plain, records = fit(table, quick(epochs=1), unnormalised())
    with_queue, others = fit(table, quick(epochs=1, queue=60), unnormalised())
    assert others[0].train_loss > records[0].train_loss  # more samples to rank
    assert (records[0].gap, others[0].gap) == (pytest.approx(records[0].gap), None)
    assert not same(plain.state_dict(), with_queue.state_dict())


# ----------------------------------------------------------------------------------- who is served


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queue": -1}, "queue must be at least 0; got -1"),
        ({"chunk": -1}, "chunk must be at least 0; got -1"),
        ({"queue": 8, "objective": "supcon"}, "queue=8 is for objective rnc .*'supcon'. Leave"),
        ({"queue": 8, "scheme": "end2end"}, "got scheme='end2end' and no objective at all"),
        ({"chunk": 8, "objective": "dino"}, "objective dino has a teacher .* Leave chunk out"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FitConfig(**fields)


def test_a_queue_of_more_than_all_rows_is_refused_and_lowered_by_the_estimator() -> None:
    table = columns(rows=50)
    with pytest.raises(ValueError, match=r"queue = 36 .* training rows, 35\. Use --queue 35"):
        fit(table, quick(queue=36))
    options: dict[str, Any] = {"preset": "quick", "epochs": 1, "device": "cpu", "chunk": 8}
    model = RnCRegressor(queue=1000, **options).fit(table.x, table.y[:, 0])
    assert [record.stage for record in model.history_] == ["encoder", "head"]


def test_a_chunk_of_one_row_is_refused_where_the_encoder_normalises() -> None:
    for changes in ({"views": 1}, {"views": 0}, {"scheme": "end2end"}):
        with pytest.raises(ValueError, match=r"chunk=1 is a single row\. Use --chunk 2 or more"):
            fit(columns(), quick(chunk=1, **changes), normalised())
    fit(columns(), quick(chunk=1, epochs=1), normalised())  # two views


def test_chunks_and_queues_have_no_cuda_graphs() -> None:
    stage = Stage("encoder", 1, 16, 2, "sgd", 0.1, 0.1, 0.0, chunk=4, queue=9)
    model = build_regressor(columns(), quick(), unnormalised())
    assert not is_graphed(quick(), model, stage, 1)
    with pytest.raises(ValueError, match=r"neither --queue nor --chunk; got .* 9 and --chunk 4"):
        is_graphed(quick(cuda_graphs="on"), model, stage, 1)


def test_a_user_hears_that_a_gpu_trains_without_cuda_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for changes in ({"queue": 8}, {"chunk": 8}):
        (note,) = data_warnings(columns(), quick(device="auto", **changes))
        assert note.startswith("With --queue or --chunk a GPU trains without CUDA graphs")
    for config in (quick(device="auto"), quick(chunk=8), quick(device="auto", cuda_graphs="off")):
        assert not data_warnings(columns(), config)
