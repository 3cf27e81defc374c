"""Time to decode 10,000 JPEG files of 96 pixels into the cache, and to load them from it.

python benchmarks/decode_speed.py --out benchmarks/results/decode_speed.csv
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from results_file import append_rows
from rnc.data.image_cache import load_images


def write_photos(folder: Path, count: int, side: int) -> list[Path]:
    """Photo-like files: smooth random colours with a little noise."""
    rng = np.random.default_rng(0)
    files = []
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.int16)
        pixels = pixels + rng.integers(-8, 8, pixels.shape, dtype=np.int16)
        files.append(folder / f"{i:05d}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


def seconds(files: list[Path], side: int, cache: Path) -> float:
    """Seconds to load all pixels and to read each of them once."""
    start = time.perf_counter()
    decoded = load_images(files, side, cache=cache)
    assert not decoded.bad
    assert decoded.x.sum(dtype=np.int64) > 0
    return time.perf_counter() - start


def main() -> None:
    """Print both times and their ratio, and write them as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = write_photos(folder, args.count, args.side)
        first = seconds(files, args.side, folder / "cache")
        second = seconds(files, args.side, folder / "cache")
    row = {
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
        "files": args.count,
        "side": args.side,
        "decode_seconds": f"{first:.2f}",
        "from_cache_seconds": f"{second:.2f}",
        "ratio": f"{first / second:.1f}",
    }
    print(row)
    append_rows(args.out, [row])


if __name__ == "__main__":
    main()
