"""Attacks on what is made of cells: any mixture of anything, in files and in memory.

What a mixture means is nobody's to say. But rows and targets must be right, inputs finite, and the
same rows must give the same inputs again.
"""

import datetime
import json
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attack.harness import Silent, Verdict
from attack.tables_truth import Rng, pick, refusal, save_text, written
from rnc.data import DataError, Table, read_inputs, read_table

# fmt: off
CELLS = (
    "", " ", "?", "NA", "n.a.", "null", "-", "--", "unknown", "0", "1", "-1", "+2", "007", "1.0",
    "1.", ".5", "1e5", "1E-5", "1e999", "inf", "-inf", "nan", "NaN", "1,5", "1,200", "1.200,5",
    "1 200", "1'200", "1_000", "12 kg", "5%", "$3", "(4)", "<5", "\u22123", "\u0663", "\u00bd",
    "\u00b2", "0x1F", "1/2", "1-2", "true", "False", "YES", "n", "on", "2024-01-31", "2024-02-30",
    "31.12.2024", "1/2/2024", "23:59", "2024-01-01T00:00:00Z", "9999-12-31", "0001-01-01",
    "12:00 PM", "Jan 5, 2024", "a", "A", "Köln", "a,b", 'a"b', "a\nb", "a\tb", "=1+1", "[red]",
    "\U0001f600", "x" * 5000, "\u200b", "train", "1.jpg", "a/b.png", "None", "NaT", "<NA>",
    "1" * 40,
)
PYTHON_CELLS = (
    None, np.nan, pd.NA, pd.NaT, True, 3, 2.5, -0.0, 10**30, Decimal("1.5"), Decimal("NaN"), 1 + 2j,
    b"x", (1, 2), [1], {"a": 1}, {1}, datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 3),
    "x", datetime.time(3), datetime.timedelta(1), np.float32(2), np.int64(5), np.bool_(True), "3",
    np.datetime64("2024-01-01"), pd.Timestamp("2024-01-01", tz="UTC"), np.array([1, 2]), object, "",
)
# fmt: on
POOLS = ("numbers", "few", "soup", "words", "dates", "typed")


def try_soup(rng: Rng, folder: Path) -> Verdict:
    """One mixture, as text, JSON or a DataFrame of Python objects."""
    n = int(rng.integers(6, 50))
    y = (rng.permutation(n) + 0.5).tolist()
    form = pick(rng, ("text", "json", "frame"))
    cells = PYTHON_CELLS if form == "frame" else CELLS
    columns = {f"c{i}": column(rng, n, cells) for i in range(int(rng.integers(1, 6)))}
    source = {"text": as_text, "json": as_json, "frame": as_frame}[form](
        rng, {**columns, "y": y}, folder
    )
    options: dict[str, Any] = {"decimal": pick(rng, (None, None, None, ",", "."))}
    if rng.random() < 0.2:
        options["feature_columns"] = ["c0"]
    role = pick(rng, ("group_column", "split_column", "subgroup_columns", *[None] * 9))
    if role is not None:
        options[role] = ["c0"] if role == "subgroup_columns" else "c0"
        options.pop("feature_columns", None)
    place = "DataFrame" if form == "frame" else source.name
    try:
        table = read_table(source, target="y", **options)
    except DataError as error:
        refusal(error, place)
        return "refused"
    check(table, y, source)
    return "right"


def column(rng: Rng, n: int, cells: Any) -> list[Any]:
    """Cells of one column: mostly of one sort, with some of any other."""
    pool = pick(rng, POOLS)
    few = [pick(rng, cells) for _ in range(int(rng.integers(1, 5)))]
    start = datetime.date(2020, 1, 1)
    values: list[Any] = [
        {
            "numbers": lambda: round(float(rng.normal()) * 1000, 3),
            "few": lambda: pick(rng, few),
            "soup": lambda: pick(rng, cells),
            "words": lambda: pick(rng, ("red", "green", "blue")),
            "dates": lambda: str(start + datetime.timedelta(int(rng.integers(900)))),
            "typed": lambda: int(rng.integers(100)),
        }[pool]()
        for _ in range(n)
    ]
    odd = rng.random() * pick(rng, (0, 0.05, 0.5))
    return [pick(rng, cells) if rng.random() < odd else value for value in values]


def as_text(rng: Rng, columns: dict[str, list[Any]], folder: Path) -> Path:
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return save_text(folder / "t.csv", written(list(columns), rows, pick(rng, ",;\t")))


def as_json(rng: Rng, columns: dict[str, list[Any]], folder: Path) -> Path:
    nested = ([1], {"a": [1]}, [], True, None, 10**25)
    lines = []
    for row in zip(*columns.values(), strict=True):
        items = dict(zip(columns, row, strict=True))
        for name in list(items)[:-1]:
            if rng.random() < 0.03:
                items[name] = pick(rng, nested)
            elif rng.random() < 0.03:
                del items[name]
        lines.append(json.dumps(items))
    return save_text(folder / "t.jsonl", "\n".join(lines))


def as_frame(rng: Rng, columns: dict[str, list[Any]], folder: Path) -> pd.DataFrame:
    made = {}
    for name, values in columns.items():
        made[name] = pd.Series(values, dtype=object)
        if rng.random() < 0.5:
            made[name] = made[name].infer_objects()
    frame = pd.DataFrame(made)
    if rng.random() < 0.2:
        with suppress(Exception):  # pandas has no types for some mixtures
            frame = frame.convert_dtypes()
    if rng.random() < 0.3:
        frame.index = pd.Index(rng.integers(3, size=len(frame)))
    return frame


def check(table: Table, y: list[float], source: Path | pd.DataFrame) -> None:
    if len(table) != len(y) or table.y[:, 0].tolist() != y:
        raise Silent(f"other rows or targets: {table.y[:, 0].tolist()} instead of {y}")
    if not np.isfinite(table.x).all():
        raise Silent("inputs that are not finite")
    json.dumps(table.preprocessing, allow_nan=False)
    preprocessing = json.loads(json.dumps(table.preprocessing))
    again = read_inputs(source, preprocessing, "table")
    if not np.array_equal(again.x, table.x):
        raise Silent("the same rows have other inputs as new data")
