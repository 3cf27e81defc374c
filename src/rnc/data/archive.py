"""Read an .npz file as inputs x and named columns. A note lists arrays without a use.

x, y                        inputs and targets
feature_names, target_names names of the columns of x and of y
group, split, weight        group of each row; train, val or test; weight of each row
any other                   a column, if it has a value for each row: (n,) or (n, 1)
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import is_zipfile

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data.errors import DataError, did_you_mean, first_few
from rnc.data.in_memory import AnyFile, open_bytes
from rnc.data.names import check_names
from rnc.data.row_weights import WEIGHT
from rnc.data.sources import as_columns

_ROLES = ("group", "split", WEIGHT)  # arrays that change the training: a wrong shape raises
_NAMES = ("feature_names", "target_names")


class Archive(NamedTuple):
    """The content of an .npz file."""

    x: NDArray[Any] | pd.DataFrame
    """Named columns, signals (n, c, l) or images (n, c, h, w)."""
    columns: dict[str, NDArray[Any]]
    """Targets and further arrays with a value for each of the n rows, by name."""
    targets: tuple[str, ...]
    """Names of the columns that come from y."""
    unused: dict[str, tuple[int, ...]]
    """Shapes of the arrays that cannot be columns, by name."""

    def notes(self, used: Sequence[str]) -> tuple[str, ...]:
        """A note for the user about arrays without a use. `used` names the columns with one."""
        names = [*(name for name in self.columns if name not in used)]
        words = [f"{name} ({len(self.x)} values)" for name in names]
        words += [f"{name} {shape}" for name, shape in self.unused.items()]
        if not words:
            return ()
        likely = next((hint for name in names if (hint := did_you_mean(name, _ROLES))), "")
        return (
            f"Arrays without a use: {first_few(words)}. A column of values is used as --target, "
            f"--group-column, --split-column, --weight-column or --subgroup-column.{likely}",
        )


def read_archive(source: Path) -> Archive:
    """An .npz file as inputs and columns."""
    place, arrays = str(source), read_npz(source)
    x = as_columns(arrays.pop("x"), arrays.pop("feature_names", None), place)
    names = arrays.pop("target_names", None)
    columns = target_arrays(arrays.pop("y"), names, place) if "y" in arrays else {}
    targets = tuple(columns)
    further, unused = row_arrays(arrays, len(x))
    for name in _ROLES:
        if name in unused:  # ignoring it would change the training silently
            raise DataError(
                f"{place}: x has {len(x)} rows and {name} is {unused[name]}; it must be "
                f"({len(x)},), a value for each row."
            )
    check_names([*columns, *further], place)
    return Archive(x, columns | further, targets, unused)


def row_arrays(
    arrays: Mapping[str, NDArray[Any]], n: int
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[int, ...]]]:
    """Arrays with a value for each row, as (n,), and the shapes of the others."""
    fits = {name: values.shape in ((n,), (n, 1)) for name, values in arrays.items()}
    columns = {name: values.reshape(n) for name, values in arrays.items() if fits[name]}
    return columns, {name: values.shape for name, values in arrays.items() if not fits[name]}


def target_arrays(
    y: NDArray[Any], names: Sequence[Any] | NDArray[Any] | None, place: str
) -> dict[str, NDArray[Any]]:
    """The columns of y by name."""
    if y.ndim not in (1, 2) or 0 in y.shape[1:]:
        raise DataError(f"{place}: y must be (n,) or (n, t) with t >= 1; got {y.shape}.")
    columns = y[:, None] if y.ndim == 1 else y
    t = columns.shape[1]
    if names is None:
        names = ["y"] if t == 1 else [f"y{i}" for i in range(t)]
    if len(names) != t or len(set(map(str, names))) != t:
        raise DataError(
            f"{place}: y has {t} columns, so it needs {t} different target names; got "
            f"{first_few(names)}."
        )
    return {str(name): columns[:, i] for i, name in enumerate(names)}


def read_npz(source: AnyFile, leave_out: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file as numbers, texts and dates. Raises if one needs pickle.

    Arrays named in `leave_out` are not read.
    """
    with open_bytes(source) as file:
        if not is_zipfile(file):
            raise DataError(f"{source} is not an NPZ file, or not whole. Write it with np.savez.")
    arrays = {}
    try:
        with open_bytes(source) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about impossible shapes, which also raise
            with np.load(file, allow_pickle=False) as archive:
                check_names(archive.files, str(source))
                for name in (name for name in archive.files if name not in leave_out):
                    arrays[name] = _plain(archive[name], name, source)
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(
            f"{source}: an array does not fit into memory ({error}). Is the file whole?"
        ) from error
    except Exception as error:  # zipfile, zlib and numpy have many types for a damaged file
        if "allow_pickle" in str(error):
            raise DataError(
                f"{source} holds Python objects, which could run code when they are loaded. Save "
                "numbers and text only: np.savez(file, x=x.astype('float32'), y=..., "
                "group=group.astype(str))."
            ) from error
        raise DataError(f"{source} cannot be read as NPZ ({error}).") from error
    if "x" not in (*arrays, *leave_out):
        raise DataError(
            f"{source} needs an array 'x' (and 'y' to train on); it holds {first_few(arrays, 30)}."
        )
    return arrays


def _plain(values: Any, name: str, source: AnyFile) -> NDArray[Any]:
    """An array in this machine's byte order, with texts as str and lists of names as (k,)."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biufcmMUS":
        got = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise DataError(
            f"{source}: array {name!r} must hold numbers, texts or dates; got {got}. Save each "
            "field as an array of its own."
        )
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{source}: array {name!r} holds bytes that are no UTF-8 text ({error}). Save "
                "numbers or texts."
            ) from error
    native: NDArray[Any] = values.astype(values.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind == "U" and native.nbytes:
        codes = np.ascontiguousarray(native).reshape(-1).view(np.uint32)
        if ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
            raise DataError(
                f"{source}: array {name!r} holds halves of surrogate pairs, which are no text. "
                "Decode the texts anew, as UTF-8."
            )
    return native.reshape(-1) if name in _NAMES else native
