"""Attacks on tables that must be refused, or at least never be read wrongly."""

import csv
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attack.harness import Silent
from attack.tables_truth import (
    TEXT_SUFFIXES,
    TYPED_SUFFIXES,
    Case,
    Rng,
    Truth,
    pick,
    save,
    save_text,
    written,
)
from rnc.data import Table

# fmt: off
ODD_TARGETS = (
    "unknown", "1,5", "12 kg", "--", "inf", "-Infinity", "1e999", "1;2", "#REF!", "0x1F",
)
# fmt: on


def twice_named(rng: Rng, truth: Truth, folder: Path) -> Case:
    """A second column of one name, in any type of file, is refused."""
    names = list(truth.columns)
    copied = pick(rng, names)
    values = pd.DataFrame(truth.columns)
    frame = pd.concat([values, values[copied]], axis=1)
    frame = frame.iloc[:, rng.permutation(frame.shape[1])]
    form = pick(rng, ("csv", "frame", "parquet", "jsonl"))
    if form == "frame":
        return Case(frame, truth, "refused")
    if form == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = [pa.array(frame.iloc[:, i], from_pandas=True) for i in range(frame.shape[1])]
        pq.write_table(pa.table(arrays, names=list(frame)), folder / "t.parquet")
        return Case(folder / "t.parquet", truth, "refused")
    if form == "jsonl":
        line = f'{{"y": 1, "{copied}": 3, "x": 2, "{copied}": 4}}\n'
        return Case(save_text(folder / "t.jsonl", line * 30), truth, "refused")
    header = [name + " " * int(rng.integers(0, 2)) for name in frame]
    cells = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    return Case(save_text(folder / "t.csv", written(header, cells)), truth, "refused")


def torn_rows(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Rows with fields too few or too many are refused."""
    rows = truth.cells()
    for i in rng.permutation(len(rows))[: int(rng.integers(1, 4))]:
        row = rows[i]
        if rng.random() < 0.5:
            rows[i] = row + [pick(rng, (None, 1, "x"))] * int(rng.integers(1, 3))
        else:
            rows[i] = row[: int(rng.integers(1, len(row)))]
        if all(value is None for value in rows[i]):
            rows[i][0] = 7
    text = written(list(truth.columns), rows, pick(rng, ",;\t"))
    return Case(save_text(folder / "t.csv", text), truth, "refused")


def units(rng: Rng, truth: Truth, folder: Path) -> Case:
    """A unit, currency or percent sign on every number is refused; a few sizes are categories."""
    before, after = pick(
        rng, (("", " kg"), ("$", ""), ("", "%"), ("€ ", ""), ("", "m2"), ("<", ""))
    )
    few = bool(rng.random() < 0.3)
    n = len(truth)
    numbers = rng.integers(1, 8, size=n) if few else np.round(rng.uniform(1, 900, size=n), 3)
    truth.columns["size"] = [f"{before}{v}{after}" for v in numbers]
    truth.kinds["size"] = "category"
    path = save(truth, folder, pick(rng, (*TEXT_SUFFIXES, *TYPED_SUFFIXES)), rng)
    return Case(path, truth, "right" if few else "refused")


def odd_target(rng: Rng, truth: Truth, folder: Path) -> Case:
    """A target that is no finite number in some row is refused."""
    odd = pick(rng, ODD_TARGETS)
    truth.columns["y"][int(rng.integers(len(truth)))] = odd
    suffix = pick(rng, TEXT_SUFFIXES)
    return Case(save(truth, folder, suffix, rng), truth, "refused")


def odd_split(rng: Rng, truth: Truth, folder: Path) -> Case:
    """A split in other words is read, one with another word or a gap is refused."""
    words = {
        "train": ("train", "Training"),
        "val": ("val", "dev", " valid "),
        "test": ("TEST", "test"),
    }
    split = [pick(rng, ("train", "train", "val", "test")) for _ in range(len(truth))]
    split[:6] = ["train", "val", "test"] * 2
    cells: list[Any] = [pick(rng, words[one]) for one in split]
    good = bool(rng.random() < 0.5)
    if not good:
        cells[int(rng.integers(6, len(cells)))] = pick(rng, ("tset", "0", "train/val", None))
    truth.columns["part"] = cells
    path = save(truth, folder, pick(rng, (*TEXT_SUFFIXES, *TYPED_SUFFIXES)), rng)
    del truth.columns["part"]

    def check(table: Table) -> None:
        if table.split.tolist() != split:
            raise Silent(f"another split: {table.split.tolist()} instead of {split}")

    options = {"split_column": "part"}
    return Case(path, truth, "right" if good else "refused", options, check)


def groups(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Rows of one group stay together, whatever the values are; a gap is refused."""
    names = pick(
        rng,
        (["a", "b", "c", "d", "e"], [1, 2, 3, 4, 5], [0.5, 1.5, 2.5, 3.5], ["1", "01", "1.0", "x"]),
    )
    group = [pick(rng, names) for _ in range(len(truth))]
    group[:8] = [names[i % len(names)] for i in range(8)]
    good = bool(rng.random() < 0.7)
    cells = list(group) if good else [None, *group[1:]]
    truth.columns["person"] = cells
    path = save(truth, folder, pick(rng, TYPED_SUFFIXES), rng)
    del truth.columns["person"]

    def check(table: Table) -> None:
        for name in set(group):
            held = {s for s, g in zip(table.split, group, strict=True) if g == name}
            if len(held) != 1:
                raise Silent(f"group {name!r} is in {held}")

    return Case(path, truth, "right" if good else "refused", {"group_column": "person"}, check)


def odd_types(rng: Rng, truth: Truth, folder: Path) -> Case:
    """A further column of any type of Arrow never breaks the others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = len(truth)
    odd: dict[str, Callable[[], Any]] = {
        "lists": lambda: pa.array([[1, 2]] * n),
        "empty lists": lambda: pa.array([[]] * n),
        "objects": lambda: pa.array([{"a": 1}] * n),
        "maps": lambda: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
        "bytes": lambda: pa.array([b"\xff"] * n),
        "decimals": lambda: pa.array([Decimal(i) / 4 for i in range(n)]),
        "nulls": lambda: pa.nulls(n),
        "dates": lambda: pa.array(np.arange(n).astype("M8[D]")),
        "times": lambda: pa.array(list(range(n)), pa.time32("s")),
        "zones": lambda: pa.array(np.arange(n).astype("M8[s]"), pa.timestamp("s", "Asia/Tokyo")),
        "durations": lambda: pa.array(list(range(n)), pa.duration("s")),
        "flags": lambda: pa.array([True, None, False] * n)[:n],
        "large": lambda: pa.array([2**63 + i for i in range(n)], pa.uint64()),
        "halves": lambda: pa.array(np.arange(n, dtype=np.float16)),
        "codes": lambda: pa.array(["a", "b"] * n)[:n].dictionary_encode(),
        "infinite": lambda: pa.array([np.inf, *range(n - 1)]),
        "far dates": lambda: pa.array((np.arange(n) + 10**6).astype("M8[D]")),
    }  # fmt: skip
    name = pick(rng, list(odd))
    columns = {key: pa.array(values) for key, values in truth.columns.items()}
    pq.write_table(pa.table({**columns, "odd": odd[name]()}), folder / "t.parquet")
    truth.rows = [str(i) for i in range(n)]
    use = pick(
        rng, ("feature", "feature", "target", "group", "subgroup", "split", "named", "images")
    )
    options: dict[str, Any] = {
        "feature": {},
        "target": {},
        "group": {"group_column": "odd"},
        "subgroup": {"subgroup_columns": ["odd"], "exclude_columns": ["odd"]},
        "split": {"split_column": "odd"},
        "named": {"feature_columns": ["odd", *truth.kinds]},
        "images": {"images": folder, "image_column": "odd", "image_size": 8},
    }[use]

    def check(table: Table) -> None:
        if table.names.tolist() != truth.rows or not np.isfinite(table.x).all():
            raise Silent("other rows, or inputs that are not finite")
        if use != "target" and table.y[:, 0].tolist() != truth.columns["y"]:
            raise Silent("other targets")

    asked = Truth(truth.columns, truth.kinds, "odd" if use == "target" else "y")
    return Case(folder / "t.parquet", asked, "either", options, check)


def large_numbers(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Numbers at the ends of what a float holds: inputs stay finite, or the cell is named."""
    odd = [
        "1e308",
        "-1e308",
        "inf",
        "-inf",
        "1e-320",
        "123456789012345678901234567890",
        "1e400",
        "-0.0",
    ]
    numbers = rng.normal(size=len(truth)).tolist()
    for i in rng.permutation(len(truth))[:3]:
        numbers[i] = pick(rng, odd)
    truth.columns["wild"] = numbers
    path = save(truth, folder, pick(rng, TEXT_SUFFIXES), rng)

    def check(table: Table) -> None:
        if not np.isfinite(table.x).all() or table.y[:, 0].tolist() != truth.columns["y"]:
            raise Silent("inputs that are not finite, or other targets")

    return Case(path, truth, "either", {}, check)


def other_encoding(rng: Rng, truth: Truth, folder: Path) -> Case:
    """A text that is not UTF-8 is refused, unless its bytes are the same."""
    truth.columns["place"] = [pick(rng, ("Zürich", "Århus", "Łódź")) for _ in range(len(truth))]
    text = written(list(truth.columns), truth.cells())
    encoding = pick(rng, ("cp1250", "utf-16", "utf-16-le", "utf-32"))
    path = folder / "t.csv"
    path.write_bytes(text.encode(encoding, errors="replace"))
    return Case(path, truth, "refused")


def damaged_bytes(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Bytes that were changed, cut or added: refused, or read as Python's csv module reads them."""
    path = save(truth, folder, pick(rng, (*TEXT_SUFFIXES, *TYPED_SUFFIXES)), rng)
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(content)))
        what = rng.random()
        if what < 0.6:
            content[at] = int(rng.integers(256))
        elif what < 0.8:
            del content[at:]
            content += b"\0" * int(rng.integers(0, 3))
        else:
            content[at:at] = rng.bytes(int(rng.integers(1, 5)))
        content = content or bytearray(b"\n")
    path.write_bytes(content)

    def check(table: Table) -> None:
        if path.suffix == ".gz" or path.suffix not in TEXT_SUFFIXES:
            return  # zlib and the binary formats may mend it; that it is finite is all we know
        text = content.decode("utf-8-sig")
        header = text.splitlines()[0]
        separator = max(",;\t", key=header.count)
        rows = list(
            csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        )
        kept = [row for row in rows[1:] if any(cell.strip() for cell in row)]
        if len(kept) != len(table):
            raise Silent(f"{len(table)} rows of {len(kept)}")

    return Case(path, truth, "either", {}, check)


BAD_FILES = [
    twice_named,
    torn_rows,
    units,
    odd_target,
    odd_split,
    groups,
    odd_types,
    large_numbers,
    other_encoding,
    damaged_bytes,
]
