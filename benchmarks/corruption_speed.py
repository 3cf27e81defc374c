"""Time to corrupt 2,000 images of 96 pixels at all five severities, type by type in one run.

On a CPU only ratios to the cheapest type are written down: times of a shared machine mean little.

    python benchmarks/corruption_speed.py --count 50                               # CPU
    python benchmarks/corruption_speed.py --device cuda --out corruption_speed.csv
"""

import argparse
import platform
import time
from pathlib import Path

import PIL
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from results_file import append_rows
from rnc.analyses.corruption import CORRUPTIONS, SEVERITIES, corrupt


def make_photos(count: int, side: int, device: str) -> Tensor:
    """Photo-like images: smooth random colours with a little noise."""
    torch.manual_seed(0)
    smooth = interpolate(torch.rand(count, 3, 6, 6), (side, side), mode="bicubic")
    noisy = 255 * smooth + 16 * torch.rand(count, 3, side, side) - 8
    return noisy.clamp(0, 255).byte().to(device)


def seconds(images: Tensor, name: str) -> float:
    """Seconds to corrupt the images at all severities, after a warm-up with two images."""
    corrupt(images[:2], name, 1)
    _wait(images)
    start = time.perf_counter()
    for severity in SEVERITIES:
        corrupt(images, name, severity)
    _wait(images)
    return time.perf_counter() - start


def _wait(images: Tensor) -> None:
    if images.is_cuda:
        torch.cuda.synchronize()


def main() -> None:
    """Print the table and write it as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    hardware = (
        torch.cuda.get_device_name()
        if args.device == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    print(f"{hardware}, torch {torch.__version__}, {args.count} images of {args.side} pixels")
    images = make_photos(args.count, args.side, args.device)
    times = {name: seconds(images, name) for name in CORRUPTIONS}
    cheapest = min(times.values())
    rows = [
        {
            "hardware": hardware,
            "torch": torch.__version__,
            "pillow": PIL.__version__,
            "images": args.count,
            "side": args.side,
            "type": name,
            "seconds": f"{spent:.3f}" if args.device == "cuda" else "",
            "over_cheapest": f"{spent / cheapest:.1f}",
        }
        for name, spent in times.items()
    ]
    for row in rows:
        print(f"{row['type']:>18} {row['seconds']:>9} {row['over_cheapest']:>7}")
    append_rows(args.out, rows)


if __name__ == "__main__":
    main()
