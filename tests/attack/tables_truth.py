"""Tables whose content is known, files of them, and what reading one must give.

The expected inputs are computed here by numpy alone, by the definitions in docs/data.md.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from attack.harness import Silent, Verdict
from rnc.data import DataError, Table
from rnc.data.features import feature_names

Rng = np.random.Generator

WORDS = ("Oslo", "Köln", 'say "hi"', "a;b", "x, y", "tab\there", "two\nlines", "=cmd()", "[bold]")
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
TYPED_SUFFIXES = (".parquet", ".feather", ".jsonl", ".json")


@dataclass
class Truth:
    """A table: named columns of Python values, None for a gap."""

    columns: dict[str, list[Any]]
    kinds: dict[str, str]
    """number, category or boolean, for every column but the target."""
    target: str
    rows: list[str] = field(default_factory=list)
    """What a message calls each row."""

    @property
    def y(self) -> np.ndarray:
        return np.array([np.nan if v is None else v for v in self.columns[self.target]], float)

    def __len__(self) -> int:
        return len(self.columns[self.target])

    def cells(self) -> list[list[Any]]:
        """Rows of values."""
        return [list(row) for row in zip(*self.columns.values(), strict=True)]


class Case(NamedTuple):
    """A file or frame to read, and what must come of it."""

    source: Path | pd.DataFrame
    truth: Truth
    expected: str = "right"
    """right, refused, or either; "any": nothing is known but that it must not crash."""
    options: dict[str, Any] = {}  # noqa: RUF012
    check: Callable[[Table], None] | None = None
    """Instead of comparing with the truth."""


def pick(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def make_truth(rng: Rng) -> Truth:
    """A small table of numbers, categories and yes or no, with gaps in some columns."""
    n = int(rng.integers(30, 60))
    columns: dict[str, list[Any]] = {
        "y": (rng.normal(size=n) * 10.0 ** rng.integers(-3, 6)).tolist()
    }
    kinds = {}
    for i in range(int(rng.integers(1, 5))):
        kind = pick(rng, ("number", "number", "category", "boolean"))
        name, kinds[f"{kind} {i}"] = f"{kind} {i}", kind
        if kind == "number":
            values: list[Any] = (rng.normal(size=n) * 10.0 ** rng.integers(-9, 9)).tolist()
        elif kind == "category":
            values = [WORDS[k] for k in rng.integers(len(WORDS), size=n)]
        else:
            values = [bool(k) for k in rng.integers(2, size=n)]
            values[:2] = [True, False]
        if rng.random() < 0.3:
            values = [None if rng.random() < 0.2 else value for value in values]
        columns[name] = values
    order = rng.permutation(len(columns))
    names = [list(columns)[k] for k in order]
    return Truth({name: columns[name] for name in names}, kinds, "y")


# ----------------------------------------------------------------------------------------- files


def text_of(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def written(header: list[str], rows: list[list[Any]], separator: str = ",", end: str = "\n") -> str:
    """A CSV file as text."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator, lineterminator=end)
    writer.writerow(header)
    for row in rows:
        writer.writerow([text_of(value) for value in row])
    return file.getvalue()


def save_text(path: Path, text: str, encoding: str = "utf-8") -> Path:
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def save(truth: Truth, folder: Path, suffix: str, rng: Rng) -> Path:
    """The table as a file of this type; sets the names of its rows."""
    path, n = folder / f"t{suffix}", len(truth)
    if suffix in TEXT_SUFFIXES:
        separator = "\t" if ".tsv" in suffix else pick(rng, ",;\t")
        text = written(list(truth.columns), truth.cells(), separator, pick(rng, ("\n", "\r\n")))
        truth.rows = [str(i) for i in range(2, n + 2)]
        return save_text(path, text, pick(rng, ("utf-8", "utf-8-sig")))
    truth.rows = [str(i) for i in range(n)]
    if suffix in (".json", ".jsonl"):
        objects = [dict(zip(truth.columns, row, strict=True)) for row in truth.cells()]
        lines = suffix == ".jsonl"
        truth.rows = [str(i + lines) for i in range(n)]
        text = "\n".join(map(json.dumps, objects)) if lines else json.dumps(objects)
        return save_text(path, text)
    frame = pd.DataFrame(truth.columns)
    if suffix == ".xlsx":
        truth.rows = [str(i) for i in range(2, n + 2)]
        frame.to_excel(path, index=False)
    else:
        (frame.to_parquet if suffix == ".parquet" else frame.to_feather)(path)
    return path


# --------------------------------------------------------------------------------------- checks


def refusal(error: DataError, place: str) -> None:
    """Raise unless an error is a message to a user: it names the place and says something."""
    text = str(error)
    if place not in text or len(text) < len(place) + 15:
        raise Silent(f"a refusal that does not say where or what: {text!r}") from error


def check_table(table: Table, truth: Truth) -> Verdict:
    """Compare a table with what it must be; raise Silent for any difference."""
    kept = [i for i in range(len(truth)) if not np.isnan(truth.y[i])]
    if table.names.tolist() != [truth.rows[i] for i in kept]:
        raise Silent(f"other rows: {table.names.tolist()} instead of {truth.rows}")
    if not np.allclose(table.y[:, 0], truth.y[kept], rtol=1e-14, atol=0):
        raise Silent(f"other targets: {table.y[:, 0]} instead of {truth.y[kept]}")
    learned = {column["name"]: column for column in table.preprocessing["columns"]}
    named = {*learned, *table.preprocessing.get("left_out", {})}
    if named != set(truth.kinds):
        raise Silent(f"other features: {sorted(named)} instead of {sorted(truth.kinds)}")
    expected = expected_inputs(truth, kept, table.split == "train", learned)
    if list(expected) != feature_names(table.preprocessing):
        raise Silent(f"other inputs: {feature_names(table.preprocessing)}, not {list(expected)}")
    for i, (name, values) in enumerate(expected.items()):
        if not np.allclose(table.x[:, i], values, rtol=1e-4, atol=1e-4):
            raise Silent(f"input {name!r} is {table.x[:, i]} instead of {values}")
    return "right"


def expected_inputs(
    truth: Truth, kept: list[int], train: np.ndarray, learned: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Inputs by name, in the order of the columns that were learned."""
    inputs: dict[str, np.ndarray] = {}
    for name in learned:
        values = [truth.columns[name][i] for i in kept]
        gaps = np.array([value is None for value in values])
        if truth.kinds[name] == "category":
            for word in sorted(
                {v for v, t in zip(values, train, strict=True) if t and v is not None}
            ):
                inputs[f"{name}={word}"] = np.array([float(v == word) for v in values])
        else:
            numbers = np.array([np.nan if v is None else float(v) for v in values])
            known = numbers[train & ~gaps]
            if len(known) and known.min() < known.max():
                if truth.kinds[name] == "boolean":
                    inputs[name] = np.where(gaps, known.mean(), numbers)
                else:
                    filled = np.where(gaps, np.median(known), numbers)
                    inputs[name] = (filled - known.mean()) / known.std()
        if gaps[train].any() and not gaps[train].all():
            inputs[f"{name} is missing"] = gaps.astype(float)
    return inputs
