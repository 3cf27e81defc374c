"""Time and memory of one forward and backward pass of the loss, side by side in one run.

    loop     the definition as n - 1 steps over (n, n) arrays, after an (n, n, d) difference
    ours     rnc_loss; on a GPU this is the fused backend
    graph    rnc_loss as a CUDA graph of torch.cuda.make_graphed_callables (GPU only)
    torch    rnc_loss with backend="torch"
    chunked  rnc_loss with backend="torch" and chunk_size
    supcon   a plain supervised contrastive loss, the usual yardstick for cost

On a CPU only ratios and memory are written down: times of a shared machine mean little.

    python benchmarks/loss_speed.py                           # CPU, n = 128 .. 4096
    python benchmarks/loss_speed.py --device cuda --sizes 512 4096 16384 65536
"""

import argparse
import functools
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from results_file import append_rows
from rnc import RnCLoss, rnc_loss

Loss = Callable[[Tensor, Tensor], Tensor]


def loop_loss(features: Tensor, targets: Tensor, temperature: float = 2.0) -> Tensor:
    """The loss in one step per positive, each for all anchors; not stable for spread features."""
    n = features.shape[0]
    off_diagonal = ~torch.eye(n, dtype=torch.bool, device=features.device)
    distances = (targets[:, None] - targets[None]).abs()[off_diagonal].view(n, n - 1)
    norms = (features[:, None] - features[None]).norm(dim=2)
    logits = (-norms / temperature)[off_diagonal].view(n, n - 1)
    exponentials = logits.exp()
    loss = features.new_zeros(())
    for j in range(n - 1):
        beyond = (distances >= distances[:, j, None]).to(features.dtype)
        denominators = (beyond * exponentials).sum(dim=1)
        loss = loss + (denominators.log() - logits[:, j]).sum()
    return loss / (n * (n - 1))


def supcon_loss(features: Tensor, targets: Tensor, temperature: float = 0.1) -> Tensor:
    """Supervised contrastive loss on normalised features; classes are the rounded targets."""
    features, classes = normalize(features, dim=1), targets.round()
    itself = torch.eye(features.shape[0], dtype=torch.bool, device=features.device)
    logits = (features @ features.T / temperature).masked_fill(itself, -torch.inf)
    log_probabilities = logits - logits.logsumexp(dim=1, keepdim=True)
    positive = (classes[:, None] == classes[None]) & ~itself
    log_probabilities = torch.where(positive, log_probabilities, 0.0)
    return -(log_probabilities.sum(1) / positive.sum(1).clamp(min=1)).mean()


def methods(chunk_size: int) -> dict[str, Loss]:
    """The losses to compare, by name."""
    return {
        "loop": loop_loss,
        "ours": rnc_loss,
        "graph": rnc_loss,
        "torch": functools.partial(rnc_loss, backend="torch"),
        "chunked": functools.partial(rnc_loss, backend="torch", chunk_size=chunk_size),
        "supcon": supcon_loss,
    }


def make_batch(n: int, d: int, device: str) -> tuple[Tensor, Tensor]:
    """Two views of n / 2 samples with integer labels 0..100, as in age estimation."""
    torch.manual_seed(0)
    features = torch.randn(n, d, device=device).requires_grad_()
    ages = torch.randint(0, 101, (n // 2,), device=device).float()
    return features, ages.repeat(2)


def step(loss: Loss, features: Tensor, targets: Tensor) -> None:
    """One forward and backward pass, which has finished when this returns."""
    features.grad = None
    loss(features, targets).backward()
    if features.is_cuda:
        torch.cuda.synchronize()


def graphed(features: Tensor, targets: Tensor) -> Loss:
    """rnc_loss as a CUDA graph for batches of this size."""
    example = (features.detach().clone().requires_grad_(), targets.clone())
    return cast("Loss", torch.cuda.make_graphed_callables(RnCLoss(validate=False), example))


def milliseconds(name: str, loss: Loss, n: int, d: int, device: str) -> float:
    """Median over at least three passes and a second of work, after a warm-up."""
    batch = make_batch(n, d, device)
    if name == "graph":
        loss = graphed(*batch)
    run = functools.partial(step, loss, *batch)
    run()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 1.0 and len(times) < 200):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def peak_mib(name: str, n: int, d: int, device: str, chunk_size: int) -> float:
    """Peak memory beyond the batch itself. On a CPU it is measured in a process of its own."""
    if device == "cpu":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_peak_of_this_process, (name, n, d, chunk_size))
    batch = make_batch(n, d, device)
    step(methods(chunk_size)[name], *batch)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(methods(chunk_size)[name], *batch)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _peak_of_this_process(name: str, n: int, d: int, chunk_size: int) -> float:
    loss = methods(chunk_size)[name]
    step(loss, *make_batch(8, d, "cpu"))  # triggers what torch loads only once
    batch = make_batch(n, d, "cpu")
    before = _status_mib("VmRSS")
    step(loss, *batch)
    return _status_mib("VmHWM") - before


def _status_mib(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}: run this on Linux.")


def main() -> None:
    """Print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--chunk-size", type=int, default=512)
    parser.add_argument("--methods", nargs="+", default=list(methods(1)), choices=list(methods(1)))
    parser.add_argument("--loop-up-to", type=int, default=512, help="the loop takes O(n^3)")
    parser.add_argument(
        "--full-up-to", type=int, default=16384, help="unchunked takes O(n^2) memory"
    )
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    hardware = (
        torch.cuda.get_device_name()
        if args.device == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    print(f"{hardware}, torch {torch.__version__}, d = {args.dim}, float32, forward + backward")
    print(f"{'n':>6} {'method':>8} {'ms':>10} {'MiB':>9} {'loop/this':>10} {'this/supcon':>12}")
    limits = {"loop": args.loop_up_to, "torch": args.full_up_to, "supcon": args.full_up_to}
    if args.device == "cpu":
        limits |= {"ours": args.full_up_to, "graph": 0}
    rows = []
    for n in args.sizes:
        names = [name for name in args.methods if n <= limits.get(name, n)]
        all_methods = methods(args.chunk_size)
        ms = {
            name: milliseconds(name, all_methods[name], n, args.dim, args.device) for name in names
        }
        for name in names:
            mib = peak_mib(name, n, args.dim, args.device, args.chunk_size)
            speedup = ms["loop"] / ms[name] if "loop" in ms else None
            relative = ms[name] / ms["supcon"] if "supcon" in ms else None
            shown = [f"{value:.2f}" if value else "-" for value in (speedup, relative)]
            print(f"{n:>6} {name:>8} {ms[name]:>10.2f} {mib:>9.1f} {shown[0]:>10} {shown[1]:>12}")
            rows.append(
                {
                    "hardware": hardware,
                    "torch": torch.__version__,
                    "n": n,
                    "d": args.dim,
                    "method": name,
                    "chunk_size": args.chunk_size if name == "chunked" else "",
                    "milliseconds": f"{ms[name]:.3f}" if args.device == "cuda" else "",
                    "peak_mib": f"{mib:.1f}",
                    "loop_over_this": f"{speedup:.2f}" if speedup else "",
                    "this_over_supcon": f"{relative:.2f}" if relative else "",
                }
            )
    append_rows(args.out, rows)


if __name__ == "__main__":
    main()
