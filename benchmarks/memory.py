"""Peak resident memory of commands, by the number of rows.

Each command runs in a process of its own. The size of the data counts numbers of a CSV as float64,
signals as float32 and pixels as bytes. Each command also runs on a thousand rows, to measure what
it takes for little data. The last column is the memory above that, divided by the bytes of the
additional rows.

python benchmarks/memory.py --out benchmarks/results/memory.csv
python benchmarks/memory.py --source ../older/src --label before --out ...    # another checkout
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from results_file import append_rows

COLUMNS, SIDE, CHANNELS, LENGTH = 20, 96, 2, 256
SMALLEST = 1000


def write_table(path: Path, rows: int) -> None:
    """A CSV of normal numbers and a target."""
    import numpy as np

    generator, weights = np.random.default_rng(0), np.linspace(-1, 1, COLUMNS)
    with path.open("w") as file:
        file.write(",".join([*(f"x{i}" for i in range(COLUMNS)), "y"]) + "\n")
        for start in range(0, rows, 10_000):
            x = generator.normal(size=(min(10_000, rows - start), COLUMNS)).round(6)
            y = x @ weights + generator.normal(size=len(x)) / 10
            np.savetxt(file, np.column_stack([x, y]), fmt="%.6f", delimiter=",")


def write_images(path: Path, rows: int) -> None:
    """A folder of JPEG files and a table that names them, with a target."""
    import numpy as np
    from PIL import Image

    folder, generator = path.with_suffix(""), np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    with path.open("w") as file:
        file.write("image,y\n")
        for i in range(rows):
            grey = int(generator.integers(256))
            Image.new("RGB", (SIDE, SIDE), (grey, grey, 0)).save(folder / f"{i}.jpg")
            file.write(f"{folder.name}/{i}.jpg,{grey}\n")


def write_signals(path: Path, rows: int) -> None:
    """An .npz file of noise and a target."""
    import numpy as np

    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, CHANNELS, LENGTH)).astype(np.float32)
    np.savez(path, x=x, y=x.mean(axis=(1, 2)))


class Kind(NamedTuple):
    """A kind of data: a function that writes it, options of `rnc fit`, and the bytes of a row."""

    write: Callable[[Path, int], None]
    suffix: str
    options: tuple[str, ...]
    row_bytes: int


KINDS = {
    "table": Kind(write_table, ".csv", ("--target", "y"), COLUMNS * 8),
    "image": Kind(
        write_images,
        ".csv",
        ("--target", "y", "--images", ".", "--image-size", str(SIDE), "--encoder", "small-cnn"),
        3 * round(SIDE * 8 / 7) ** 2,
    ),
    "signal": Kind(write_signals, ".npz", (), CHANNELS * LENGTH * 4),
}


def peak(words: list[str], source: Path, folder: Path) -> float:
    """The peak memory of a command in MiB."""
    environment = os.environ | {
        "PYTHONPATH": str(source.resolve()),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "rnc.cli", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"rnc {' '.join(words)}: {said[-2000:]}")
    return usage.ru_maxrss / 1024


def data_file(kind: str, rows: int, folder: Path) -> Path:
    """The data file, made by another process: memory of this one would count for its children."""
    path = folder / f"{kind}-{rows}{KINDS[kind].suffix}"
    if not path.exists():
        code = f"import memory; memory.KINDS[{kind!r}].write(memory.Path({str(path)!r}), {rows})"
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return path


def words_of(command: str, kind: str, rows: int, folder: Path) -> list[str]:
    """The arguments of `rnc`. If the command needs a trained run, that is trained first."""
    options, data = KINDS[kind].options, data_file(kind, rows, folder)
    training = [*options, "--preset", "quick", "--epochs", "1", "--device", "cpu", "--overwrite"]
    if command == "fit":
        return ["fit", str(data), *training, "--out", f"runs/{kind}-{rows}"]
    run = folder / "runs" / kind
    if not run.exists():
        small = data_file(kind, SMALLEST, folder)
        here = Path(__file__).parent.parent / "src"
        peak(["fit", str(small), *training, "--out", str(run)], here, folder)
    if command == "predict":
        return ["predict", str(run), str(data), "--output", "predicted.csv", "--overwrite"]
    return ["evaluate", str(run), "--data", str(data), "--out", "evaluated", "--overwrite"]


def main() -> None:
    """Print peaks and slopes, and write them as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--source", type=Path, default=Path(__file__).parent.parent / "src")
    parser.add_argument("--label", default="after")
    parser.add_argument("--command", choices=("fit", "predict", "evaluate"), default="fit")
    parser.add_argument("--kind", choices=tuple(KINDS), default="table")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--folder", type=Path, help="for data and runs, which stay there")
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        found = {
            rows: peak(words_of(args.command, args.kind, rows, folder), args.source, folder)
            for rows in (SMALLEST, *args.rows)
        }
    row_bytes, base = KINDS[args.kind].row_bytes, found[SMALLEST]
    written: list[dict[str, object]] = [
        {
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
            "version": args.label,
            "command": args.command,
            "kind": args.kind,
            "rows": rows,
            "data MB": f"{rows * row_bytes / 2**20:.1f}",
            "peak MB": f"{megabytes:.0f}",
            "peak above smallest / data": ""
            if rows == SMALLEST
            else f"{(megabytes - base) * 2**20 / ((rows - SMALLEST) * row_bytes):.2f}",
        }
        for rows, megabytes in found.items()
    ]
    for row in written:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    append_rows(args.out, written)


if __name__ == "__main__":
    main()
