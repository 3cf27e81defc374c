"""Real gloo processes: DDP's averaged gradient equals that of one process with the whole batch."""

import copy
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rnc import rnc_loss
from rnc.loss.options import Backend

CASES: dict[str, tuple[list[int], dict[str, Any]]] = {
    "equal batches": ([4, 4, 4], {}),
    "unequal batches": ([5, 2, 7], {}),
    "one row in a process": ([1, 6, 3], {}),
    "no row in a process": ([6, 0, 3], {}),
    "in chunks": ([5, 2, 7], {"chunk_size": 3}),
    "few positives": ([5, 2, 7], {"positives": 2}),
    "cosine": ([5, 2, 7], {"similarity": "cosine"}),
    "missing targets": ([5, 2, 7], {"missing": "skip"}),
    "weights": ([5, 2, 7], {"weights": True}),
    "weights where a process has no row": ([6, 0, 3], {"weights": True}),
    "weights in chunks, some missing": (
        [5, 2, 7],
        {"weights": True, "chunk_size": 3, "missing": "skip"},
    ),
}


def split(rows: Tensor, counts: list[int]) -> Tensor:
    start = sum(counts[: dist.get_rank()])
    return rows[start : start + counts[dist.get_rank()]]


def check_against_one_process(counts: list[int], options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    counts = counts[: dist.get_world_size()]
    n = sum(counts)
    inputs, targets = torch.randn(n, 2, 6), torch.randint(0, 5, (n, 1)).float()
    if "missing" in options:
        targets[0] = targets[-1] = torch.nan
    weights: list[Tensor | None] = [None, None]
    if "weights" in options:
        options = {name: value for name, value in options.items() if name != "weights"}
        whole = 1e3 * torch.rand(n)
        whole[: counts[0]] *= 1e-3  # unlike means: those of the processes would give another loss
        weights = [whole, split(whole, counts)]
    alone = nn.Linear(6, 4)
    together = DistributedDataParallel(copy.deepcopy(alone))

    # The equation itself, unless it has not got the option.
    backend: Backend = "torch" if {"chunk_size", "positives"} & set(options) else "reference"
    expected = rnc_loss(alone(inputs), targets, weights=weights[0], backend=backend, **options)
    expected.backward()
    loss = rnc_loss(
        *(together(split(inputs, counts)), split(targets, counts)),
        weights=weights[1],
        gather=True,
        **options,
    )
    loss.backward()

    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    for a, b in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)


def check_reference() -> None:
    """Local anchors against the reference rows of all processes."""
    torch.manual_seed(0)
    counts = [3, 5, 4][: dist.get_world_size()]
    n = sum(counts)
    anchors, others = torch.randn(n, 6), torch.randn(n, 6)
    labels, other_labels = torch.rand(n), torch.rand(n)
    alone = nn.Linear(6, 4)
    together = DistributedDataParallel(copy.deepcopy(alone))
    expected = rnc_loss(alone(anchors), labels, reference=(alone(others), other_labels))
    expected.backward()
    out = together(torch.cat([split(anchors, counts), split(others, counts)]))
    mine, theirs = out.chunk(2)
    loss = rnc_loss(
        mine, split(labels, counts), reference=(theirs, split(other_labels, counts)), gather=True
    )
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    grad = together.module.weight.grad
    torch.testing.assert_close(grad, alone.weight.grad, rtol=1e-5, atol=1e-6)


def check_targets_known_in_part(*, first_process_is_exact: bool) -> None:
    """A process whose own targets are all exact ranks them as the others rank theirs."""
    torch.manual_seed(0)
    counts = [3, 5, 4][: dist.get_world_size()]
    n = sum(counts)
    inputs, lower = torch.randn(n, 2, 6), torch.rand(n)
    upper = lower.clone()
    start = counts[0] if first_process_is_exact else 0
    upper[start::2] = torch.inf
    lower[start + 1 :: 3] = -torch.inf
    alone = nn.Linear(6, 4)
    together = DistributedDataParallel(copy.deepcopy(alone))
    expected = rnc_loss(alone(inputs), lower, upper=upper)
    expected.backward()
    ends = {"targets": split(lower, counts), "upper": split(upper, counts)}
    loss = rnc_loss(together(split(inputs, counts)), **ends, gather=True)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    grad = together.module.weight.grad
    torch.testing.assert_close(grad, alone.weight.grad, rtol=1e-5, atol=1e-6)


def check_one_loss_per_local_anchor() -> None:
    torch.manual_seed(0)
    counts = [3, 5, 4][: dist.get_world_size()]
    features, targets = torch.randn(sum(counts), 2, 6), torch.rand(sum(counts))
    expected = rnc_loss(features, targets, reduction="none")
    local = rnc_loss(split(features, counts), split(targets, counts), gather=True, reduction="none")
    torch.testing.assert_close(local, split(expected, counts))


def check_different_widths_raise_everywhere() -> None:
    features = torch.randn(4, 6 if dist.get_rank() == 0 else 5)
    with pytest.raises(
        ValueError, match=r"same number of features .*got .*\(4, 6, 1\), \(4, 5, 1\)"
    ):
        rnc_loss(features, torch.arange(4.0), gather=True)


def check_without_gather_processes_stay_apart() -> None:
    torch.manual_seed(dist.get_rank())
    features, targets = torch.randn(6, 3), torch.rand(6)
    assert rnc_loss(features, targets).item() == rnc_loss(features, targets, gather=False).item()
    assert rnc_loss(features, targets, gather=True) != rnc_loss(features, targets)


def check_the_equation_sees_one_process() -> None:
    with pytest.raises(ValueError, match=r"'reference' cannot run here: .*got gather=True"):
        rnc_loss(torch.randn(4, 3), torch.rand(4), gather=True, backend="reference")


def run_all_checks(rank: int, world_size: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    for name, (counts, options) in CASES.items():
        try:
            check_against_one_process(counts, options)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    check_reference()
    for first_process_is_exact in (True, False):
        check_targets_known_in_part(first_process_is_exact=first_process_is_exact)
    check_one_loss_per_local_anchor()
    check_different_widths_raise_everywhere()
    check_without_gather_processes_stay_apart()
    check_the_equation_sees_one_process()
    Path(f"{rendezvous}.{rank}").touch()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # all is checked; where gloo's threads end with the interpreter, torch may abort


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_equal_one_process(world_size: int, tmp_path: Path) -> None:
    rendezvous = tmp_path / "rendezvous"
    mp.spawn(run_all_checks, (world_size, str(rendezvous)), nprocs=world_size)
    assert len(list(tmp_path.glob("rendezvous.*"))) == world_size


def test_gather_has_no_effect_in_a_single_process() -> None:
    features, targets = torch.randn(6, 3), torch.rand(6)
    assert rnc_loss(features, targets, gather=True) == rnc_loss(features, targets)
