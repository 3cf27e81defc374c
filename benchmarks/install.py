"""Size and start-up time of the wheel in fresh environments, for each way to install it.

This builds the wheel. For each way to install it (flavour), it makes an environment in a temporary
folder, installs torch and then the wheel, and runs what the flavour is for; a failure is an error.
It also times the commands and imports (doors) of the flavour. It needs the package index and 7 GB
of disk.

python benchmarks/install.py --out benchmarks/results/install.csv        # all flavours
python benchmarks/install.py --python python3.13 --flavours loss         # one, with another Python
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from results_file import append_rows
from startup import DOORS, seconds

ROOT = Path(__file__).parent.parent
LOSS_DOORS = ("import torch", "import rnc", "from rnc import RnCLoss")
USE_LOSS = """
import torch
from rnc import RnCLoss, rnc_loss
features = torch.randn(8, 4, requires_grad=True)
rnc_loss(features, torch.arange(8.0)).backward()
assert features.grad.abs().sum() > 0
assert RnCLoss()(features, torch.arange(8.0)) > 0
"""
USE_JOB = """
import subprocess, sys
import numpy as np, pandas as pd
x = np.random.default_rng(0).normal(size=(80, 2))
pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x.sum(1)}).to_csv("data.csv", index=False)
fit = "fit data.csv --target y --preset quick --epochs 2 --batch-size 16 --device cpu --out run"
for words in (fit, "predict run data.csv -o new.csv", "report run"):
    subprocess.run([sys.executable, "-m", "rnc", *words.split()], check=True, capture_output=True)
assert len(pd.read_csv("new.csv")) == 80
"""
USE_ALL = """
from importlib.metadata import distribution, requires
from packaging.requirements import Requirement
for text in requires("rank-n-contrast"):
    one = Requirement(text)
    if one.marker is None or one.marker.evaluate({"extra": "all"}):
        assert distribution(one.name).version
"""


@dataclass(frozen=True)
class Flavour:
    """A way to install the wheel, and the code that must run then."""

    extra: str
    words: tuple[str, ...]
    uses: tuple[str, ...]
    doors: tuple[str, ...] = field(default=tuple(DOORS))


FLAVOURS = {
    "loss": Flavour("", ("--no-deps",), (USE_LOSS,), LOSS_DOORS),
    "job": Flavour("", (), (USE_LOSS, USE_JOB)),
    "all": Flavour("[all]", (), (USE_LOSS, USE_JOB, USE_ALL)),
}


def run(*words: object, folder: Path | None = None) -> str:
    """The output of a command. If it fails, the benchmark ends."""
    result = subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{result.stdout}{result.stderr}")
    return result.stdout


def megabytes(folder: Path) -> float:
    """The size of all files of a folder, in units of 10^6 bytes."""
    sizes = (path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    return sum(sizes) / 1e6


def measure(flavour: str, python: str, wheel: Path, repeats: int) -> list[dict[str, object]]:
    """Install a flavour in an environment of its own, use it, and time its doors."""
    chosen = FLAVOURS[flavour]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(python, "-m", "venv", folder / "env")
        own = folder / "env" / "bin" / "python"
        install = [own, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
        run(*install, "torch")
        with_torch = megabytes(folder / "env")
        run(*install, *chosen.words, f"{wheel}{chosen.extra}")
        size = megabytes(folder / "env")
        if flavour != "loss":
            run(own, "-m", "pip", "check")
        for code in chosen.uses:
            run(own, "-c", code, folder=folder)
        packages = len(run(own, "-m", "pip", "list", "--format=freeze").split())
        version = run(own, "-c", "import platform; print(platform.python_version())").strip()
        taken = {door: seconds(DOORS[door], None, repeats, python=own) for door in chosen.doors}
    return [
        {
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": version,
            "flavour": flavour,
            "wheel KB": round(wheel.stat().st_size / 1e3),
            "packages": packages,
            "MB": round(size),
            "MB beside torch": round(size - with_torch, 1),
            "door": door,
            "seconds": f"{spent:.2f}",
            "imports of torch": f"{spent / taken['import torch']:.2f}",
        }
        for door, spent in taken.items()
    ]


def main() -> None:
    """Print sizes and seconds, and write them as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--python", default=sys.executable, help="of the environments")
    parser.add_argument("--flavours", nargs="+", choices=list(FLAVOURS), default=list(FLAVOURS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", name, ROOT)
        [wheel] = Path(name).glob("*.whl")
        for flavour in args.flavours:
            rows = measure(flavour, args.python, wheel, args.repeats)
            for row in rows:
                print(*row.values(), sep="  ", flush=True)
            append_rows(args.out, rows)


if __name__ == "__main__":
    main()
