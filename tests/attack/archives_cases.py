"""Attacks on .npz files: odd keys, shapes, types, orders of bytes, and damage."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from attack.harness import Silent, Verdict
from attack.tables_truth import Rng, pick, refusal
from rnc.data import DataError, Table, read_table

Arrays = dict[str, Any]

NAMES = ["width", "Höhe", "depth", "[/b]", "a b"]
SPLITS = np.array(["train", "val", "test"])


def try_archive(rng: Rng, folder: Path) -> Verdict:
    """One archive: every array that it holds counts, is named, or is refused."""
    path, arrays = folder / "d.npz", good_arrays(rng)
    attack = pick(rng, ATTACKS)
    expected = attack(rng, arrays, path)
    if attack not in (damaged, absurd_shape, objects):
        (np.savez if rng.random() < 0.7 else np.savez_compressed)(path, **arrays)
    try:
        table = read_table(path)
    except DataError as error:
        refusal(error, path.name)
        if expected == "right":
            raise Silent(f"{attack.__name__}: good arrays were refused: {error}") from error
        return "refused"
    if expected == "refused":
        raise Silent(f"{attack.__name__}: bad arrays were read")
    check(table, arrays)
    return "right"


def good_arrays(rng: Rng) -> Arrays:
    """Inputs of any kind with targets; maybe groups, a split and names."""
    n, kind = int(rng.integers(12, 40)), pick(rng, ("table", "signal", "image"))
    p = int(rng.integers(1, 5))
    x: Any = {
        "table": lambda: rng.normal(size=(n, p)) * 10.0 ** rng.integers(-5, 5),
        "signal": lambda: rng.normal(size=(n, p, 9)),
        "image": lambda: rng.integers(0, 256, size=(n, 3, 5, 6)),
    }[kind]()
    t = int(rng.integers(1, 4))
    y = rng.normal(size=(n, t))
    arrays: Arrays = {"x": x, "y": y[:, 0] if t == 1 and rng.random() < 0.5 else y}
    if rng.random() < 0.4:
        group = np.arange(n) // 3
        group = pick(rng, (group, group.astype(str), group.astype("S3"), group * 0.5))
        arrays["group"] = group.reshape(pick(rng, ((n,), (n, 1))))
    elif rng.random() < 0.5:
        split = SPLITS[np.arange(n) % 3]
        split = pick(rng, (split, split.astype("S5"), np.char.upper(split)))
        arrays["split"] = split.reshape(pick(rng, ((n,), (n, 1))))
    if rng.random() < 0.5:
        arrays["target_names"] = np.array(NAMES[:t])
    if kind == "table" and rng.random() < 0.5:
        names = np.array([f"{name} x" for name in NAMES[:p]])
        arrays["feature_names"] = pick(rng, (names, np.char.encode(names, "utf-8")))
    return arrays


# -------------------------------------------------------------------------------------- attacks


def nothing(rng: Rng, arrays: Arrays, path: Path) -> str:
    return "right"


def other_types(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Types that hold the same numbers."""
    x = arrays["x"]
    if x.dtype.kind == "i":
        arrays["x"] = x.astype(pick(rng, ("uint8", ">i4", "<u2", "int16")))
    else:
        arrays["x"] = x.astype(pick(rng, (">f8", "float32", ">f4", "longdouble")))
    arrays["x"] = np.asfortranarray(arrays["x"]) if rng.random() < 0.5 else arrays["x"]
    arrays["y"] = arrays["y"].astype(pick(rng, (">f8", "float64", "<f4", "U32")))
    return "right"


def extra_arrays(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Arrays of other names and shapes, of types that can be read."""
    n = len(arrays["x"])
    shapes = ((), (n,), (n, 1), (1, n), (n + 1,), (0,), (2, 2))
    for i in range(int(rng.integers(1, 4))):
        values = np.ones(pick(rng, shapes))
        name = pick(rng, ("grp", "groups", "splits", "names", f"more {i}", "X", "Y"))
        arrays[name] = values.astype(pick(rng, ("f8", "i2", "?", "U3", "S3", "M8[D]", "c16")))
    return "right"


def unreadable_types(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Records, raw bytes and bytes that are no text, under any name."""
    name = pick(rng, ("x", "y", "group", "split", "feature_names", "more"))
    shape = arrays[name].shape if name in arrays else (len(arrays["x"]),)
    odd = [np.zeros(shape, "V4"), np.zeros(shape, [("a", "f4")]), np.full(shape, b"\xff\xfe")]
    arrays[name] = pick(rng, odd)
    return "refused"


def wrong_shapes(rng: Rng, arrays: Arrays, path: Path) -> str:
    """A shape that cannot be what the name says."""
    n = len(arrays["x"])
    name = pick(rng, ("x", "y", "group", "split"))
    shape = pick(rng, ((), (n - 1,), (n, 0, 2), (0,), (n, 0), (n, 1, 1, 1, 1, 1)))
    if name in ("group", "split"):
        shape = pick(rng, ((), (n - 1,), (n, 2), (1, n), (n, 1, 1)))
    arrays[name] = np.ones(shape)
    return "refused"


def wrong_names(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Names twice, too few or too many."""
    name = "feature_names" if arrays["x"].ndim == 2 and rng.random() < 0.5 else "target_names"
    y = arrays["y"]
    k = arrays["x"].shape[1] if name == "feature_names" else y.shape[1] if y.ndim == 2 else 1
    bad = [["a"] * k if k > 1 else ["a", "a"], [f"a{i}" for i in range(k + 1)]]
    arrays[name] = np.array(pick(rng, bad))
    return "refused"


def no_numbers(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Gaps and infinite numbers where none may be; complex numbers; words as targets."""
    what = pick(rng, ("y nan", "y inf", "y word", "x complex", "x inf"))
    if what.startswith("y"):
        y = arrays["y"].astype(object)
        y.flat[3] = {"y nan": np.nan, "y inf": -np.inf, "y word": "tall"}[what]
        arrays["y"] = y.astype(str if what == "y word" else float)
    elif what == "x complex":
        arrays["x"] = arrays["x"] * 1j
    else:
        arrays["x"] = arrays["x"].astype(float)
        arrays["x"].flat[5] = np.inf
    return "refused"


def objects(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Python objects would have to be unpickled."""
    name = pick(rng, list(arrays))
    np.savez(path, **{**arrays, name: arrays[name].astype(object)})
    return "refused"


def absurd_shape(rng: Rng, arrays: Arrays, path: Path) -> str:
    """A header that promises more than there is."""
    shape = pick(rng, ((10**6, 10**6), (10**18, 3), (2**63, 2), (2**70,), (-3, 2), (5, 10**5)))
    file = io.BytesIO()
    header = {"descr": pick(rng, ("<f8", "|u1", "<U9")), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    np.savez(path, **{name: values for name, values in arrays.items() if name != "x"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", file.getvalue() + rng.bytes(50))
    return "refused"


def damaged(rng: Rng, arrays: Arrays, path: Path) -> str:
    """Bytes that were changed, cut or added."""
    np.savez(path, **arrays)
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(content)))
        if rng.random() < 0.7:
            content[at] ^= 1 << int(rng.integers(8))
        elif rng.random() < 0.5:
            del content[max(at, 1) :]
        else:
            content[at:at] = rng.bytes(3)
    path.write_bytes(content)
    return "either"


ATTACKS = [
    nothing,
    other_types,
    extra_arrays,
    unreadable_types,
    wrong_shapes,
    wrong_names,
    no_numbers,
    objects,
    absurd_shape,
    damaged,
]


# --------------------------------------------------------------------------------------- checks


def check(table: Table, arrays: Arrays) -> None:
    """Compare with the arrays; raise Silent for any difference."""
    n = len(arrays["x"])
    y = np.asarray(arrays["y"]).astype(float).reshape(n, -1)
    if not np.array_equal(table.y, y):
        raise Silent("other targets")
    x = np.asarray(arrays["x"], float)
    if x.ndim == 2:
        train = x[table.split == "train"]
        varies = train.min(axis=0) < train.max(axis=0)
        x = ((x - train.mean(axis=0)) / np.where(varies, train.std(axis=0), 1))[:, varies]
    if table.x.shape != x.shape or not np.allclose(table.x, x, rtol=1e-4, atol=1e-4):
        raise Silent(f"other inputs: {table.x} instead of {x}")
    if "split" in arrays:
        words = [str(word).removeprefix("b").strip("'").lower() for word in arrays["split"].flat]
        if table.split.tolist() != words:
            raise Silent(f"another split: {table.split.tolist()} instead of {words}")
    if "group" in arrays:
        for value in np.unique(arrays["group"]):
            held = set(table.split[arrays["group"].reshape(n) == value])
            if len(held) > 1:
                raise Silent(f"group {value} is in {held}")
    known = ("x", "y", "split", "group", "target_names", "feature_names")
    notes = " ".join(table.notes)
    if silent := [name for name in arrays if name not in known and f"{name} (" not in notes]:
        raise Silent(f"arrays without a use and without a word: {silent}")
