"""Files that `rnc predict` writes, checked before any data are read.

predictions   .csv, .tsv or .parquet; "-" is the standard output
features      .npz (names, features), .csv, .tsv or .parquet (name, f0, f1, ...)
"""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.files import write_file
from rnc.run.predictions import NAME
from rnc.run.spreadsheet import guarded_frame

STDOUT = "-"
FRAMES = (".csv", ".tsv", ".parquet")
FEATURES = (".npz", *FRAMES)


def check_output(
    output: Path, known: Sequence[str], *, run: Path, sources: Iterable[Path], overwrite: bool
) -> None:
    """Raise if a file cannot be written, or if something would be lost.

    Args:
        output: the file.
        known: its possible endings.
        run: the run folder, whose own files stay as they are.
        sources: what is read: files and folders.
        overwrite: whether a file of this name may be replaced; it never may if it is read.
    """
    if output.suffix.lower() not in known:
        raise ValueError(f"{output} must end in {', '.join(known)}, which says the format.")
    for source in sources:
        if _same(output, source):
            raise ValueError(
                f"{output} is the data that are read ({source}): it would be lost. Choose another "
                "name for the output."
            )
    if output.resolve().is_relative_to(run.resolve()) and output.exists():
        raise ValueError(f"{output} is a part of the run {run}. Choose another place.")
    if output.exists() and not output.is_file():
        raise ValueError(f"{output} is no file that can be written. Choose another name.")
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists. Add --overwrite, or choose another name with -o.")
    folder = next(parent for parent in output.resolve().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PermissionError(f"{output} cannot be written: {folder} is no folder to write to.")


def _same(one: Path, other: Path) -> bool:
    """Whether two names stand for one file, through links, too."""
    both_exist = one.exists() and other.exists()
    return one.resolve() == other.resolve() or (both_exist and one.samefile(other))


def write_frame(frame: pd.DataFrame, output: Path | str) -> None:
    """Write a table in the format of its ending; "-" is CSV on the standard output."""
    if output == STDOUT:
        sys.stdout.write(frame.to_csv(index=False, lineterminator="\n"))
        return
    path = Path(output)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        texts = [name for name in frame if frame[name].dtype == object]  # Parquet: one type each
        frame = frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in texts})
        write_file(path, lambda temporary: frame.to_parquet(temporary, index=False))
    else:
        separator, frame = "\t" if suffix == ".tsv" else ",", guarded_frame(frame)
        write_file(path, lambda temporary: frame.to_csv(temporary, index=False, sep=separator))


def write_features(names: NDArray[np.str_], features: NDArray[np.float32], output: Path) -> None:
    """Write features (n, d) with the names of their samples (n,)."""
    if output.suffix.lower() != ".npz":
        columns = [f"f{i}" for i in range(features.shape[1])]
        frame = pd.DataFrame(features, columns=columns)
        frame.insert(0, NAME, names)
        write_frame(frame, output)
        return

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, names=names, features=features)

    write_file(output, write)
