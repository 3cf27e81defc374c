"""Start-up time of commands and imports (doors), in seconds and in imports of torch.

Times are processor seconds, so that other work on the machine does not count.

python benchmarks/startup.py --out benchmarks/results/startup.csv
python benchmarks/startup.py --source ../older/src --label before --out ...    # another checkout
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

from results_file import append_rows

DOORS = {
    "import torch": ["-c", "import torch"],
    "import rnc": ["-c", "import rnc"],
    "rnc --version": ["-m", "rnc.cli", "--version"],
    "rnc --help": ["-m", "rnc.cli", "--help"],
    "rnc fit --help": ["-m", "rnc.cli", "fit", "--help"],
    "from rnc import RnCLoss": ["-c", "from rnc import RnCLoss"],
    "from rnc import RnCRegressor": ["-c", "from rnc import RnCRegressor"],
    "what rnc predict imports": ["-c", "import rnc.run.predict"],
}


def seconds(
    words: list[str], source: Path | None, repeats: int, *, python: Path | str = sys.executable
) -> float:
    """Processor seconds of the fastest of several runs of Python.

    Args:
        words: the arguments of Python.
        source: a folder with the package; None if the package is installed for that Python.
        repeats: the number of runs.
        python: the Python to run, such as that of another environment.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {} if source is None else {"PYTHONPATH": str(source)}
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, *words], env=environment, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    """Print seconds and ratios, and write them as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--source", type=Path, default=Path(__file__).parent.parent / "src")
    parser.add_argument("--label", default="after")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    found = {door: seconds(words, args.source, args.repeats) for door, words in DOORS.items()}
    rows: list[dict[str, object]] = [
        {
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
            "version": args.label,
            "door": door,
            "seconds": f"{taken:.2f}",
            "imports of torch": f"{taken / found['import torch']:.2f}",
        }
        for door, taken in found.items()
    ]
    for row in rows:
        print(*row.values(), sep="  ")
    append_rows(args.out, rows)


if __name__ == "__main__":
    main()
