"""Real gloo processes: the baselines see the global batch, as the RnC loss does."""

import copy
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rnc.methods.dino import DinoLoss
from rnc.methods.lds_fds import FDS
from rnc.methods.simclr import ntxent_loss
from rnc.methods.supcon import supcon_loss

COUNTS = {"equal": [4, 4, 4], "unequal": [5, 1, 7], "an empty process": [6, 0, 3]}
Loss = Callable[[Tensor, Tensor, bool], Tensor]
LOSSES: dict[str, Loss] = {
    "simclr": lambda features, _, gather: ntxent_loss(features, gather=gather),
    "supcon": lambda features, classes, gather: supcon_loss(features, classes, gather=gather),
}


def split(rows: Tensor, counts: list[int]) -> Tensor:
    start = sum(counts[: dist.get_rank()])
    return rows[start : start + counts[dist.get_rank()]]


def check_same_gradients(together: nn.Module, alone: nn.Module) -> None:
    for a, b in zip(together.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)


def check_contrast(loss_of: Loss, counts: list[int]) -> None:
    inputs, classes = torch.randn(sum(counts), 2, 6), torch.randint(0, 4, (sum(counts),))
    alone = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
    together = DistributedDataParallel(copy.deepcopy(alone))
    expected = loss_of(alone(inputs), classes, False)
    expected.backward()
    loss = loss_of(together(split(inputs, counts)), split(classes, counts), True)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    check_same_gradients(together, alone)


def check_dino(counts: list[int]) -> None:
    alone = nn.Linear(6, 4)
    together = DistributedDataParallel(copy.deepcopy(alone))
    one, several = DinoLoss(4), DinoLoss(4, gather=True)
    for _ in range(3):
        inputs, teacher = torch.randn(sum(counts), 2, 6), torch.randn(sum(counts), 2, 4)
        expected = one(alone(inputs), teacher)
        expected.backward()
        loss = several(together(split(inputs, counts)), split(teacher, counts))
        loss.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(several.centre, one.centre)
        check_same_gradients(together, alone)


class Calibrated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.fds = FDS(4, low=0, high=7)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        features: Tensor = self.fds(self.linear(inputs), labels)
        return features


def check_fds(counts: list[int]) -> None:
    """Inside DDP, which broadcasts buffers at every step."""
    alone = Calibrated()
    together = DistributedDataParallel(copy.deepcopy(alone))
    for _ in range(3):
        for _ in range(2):
            inputs, labels = torch.randn(sum(counts), 6), torch.randint(-1, 9, (sum(counts),))
            expected = alone(inputs, labels)
            own = together(split(inputs, counts), split(labels, counts))
            torch.testing.assert_close(own, split(expected, counts), rtol=1e-5, atol=1e-5)
        alone_sums, alone.fds._sums = alone.fds._sums, None
        assert alone_sums is not None
        # `alone` has the whole batch in every process, so it is shared out before the sum.
        alone.fds._sums = alone_sums / dist.get_world_size()
        alone.fds.finish_epoch()
        together.module.fds.finish_epoch()
    for name, statistic in alone.fds.named_buffers():
        torch.testing.assert_close(together.module.fds.get_buffer(name), statistic)
    assert alone.fds.count.sum() == 6 * sum(counts)


def run_all_checks(rank: int, world_size: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    for counts_name, counts in COUNTS.items():
        checks: dict[str, Callable[[list[int]], None]] = {"dino": check_dino, "fds": check_fds}
        for name, loss_of in LOSSES.items():
            checks[name] = lambda counts, loss_of=loss_of: check_contrast(loss_of, counts)
        for name, check in checks.items():
            torch.manual_seed(0)
            try:
                check(counts)
            except AssertionError as error:
                raise AssertionError(f"{name}, {counts_name}: {error}") from error
    Path(f"{rendezvous}.{rank}").touch()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # all is checked; where gloo's threads end with the interpreter, torch may abort


def test_processes_equal_one_process(tmp_path: Path) -> None:
    rendezvous = tmp_path / "rendezvous"
    mp.spawn(run_all_checks, (3, str(rendezvous)), nprocs=3)
    assert len(list(tmp_path.glob("rendezvous.*"))) == 3


def test_gather_has_no_effect_in_a_single_process() -> None:
    features, classes = torch.randn(6, 2, 3), torch.arange(6) // 2
    for loss_of in LOSSES.values():
        assert loss_of(features, classes, True) == loss_of(features, classes, False)
    assert DinoLoss(3, gather=True)(features, features) == DinoLoss(3)(features, features)
