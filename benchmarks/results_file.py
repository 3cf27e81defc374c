"""Append the results of a benchmark to a CSV file, with a header if the file is new."""

import csv
from collections.abc import Sequence
from pathlib import Path


def append_rows(path: Path | None, rows: Sequence[dict[str, object]]) -> None:
    """Append rows to a file; without a path, nothing is written."""
    if path is None:
        return
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)
