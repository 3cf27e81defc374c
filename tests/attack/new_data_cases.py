"""Attacks on new data for a fitted model: rows that do not fit must not pass without a word."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attack.harness import Silent, Verdict
from attack.tables_truth import (
    TEXT_SUFFIXES,
    TYPED_SUFFIXES,
    Rng,
    Truth,
    make_truth,
    pick,
    refusal,
    save,
)
from rnc.data import DataError, read_inputs, table_from_arrays
from rnc.data.features import feature_names

NO_NUMBER = ("abc", "1,5", "12 kg", "--", "1e", "inf", "2024-01-01", "0x1F", "\u22123")


def try_new_data(rng: Rng, folder: Path) -> Verdict:
    """One table with one change: the inputs are those of training but for it, or it is refused."""
    truth = make_truth(rng)
    features = Truth({k: v for k, v in truth.columns.items() if k != "y"}, truth.kinds, "y")
    fitted = table_from_arrays(pd.DataFrame(features.columns), truth.y, split_seed=3)
    used = [column["name"] for column in fitted.preprocessing["columns"]]
    expected, names = fitted.x.copy(), feature_names(fitted.preprocessing)
    row, name = int(rng.integers(len(truth))), pick(rng, used)
    what = pick(rng, ("nothing", "odd cell", "new category", "gap", "no column", "more", "twice"))
    rows = np.arange(len(truth))
    good = True
    columns: dict[str, list[Any]] = {key: list(features.columns[key]) for key in used}
    learned = next(c for c in fitted.preprocessing["columns"] if c["name"] == name)
    own = [
        i for i, one in enumerate(names) if one.split("=")[0] == name or one == f"{name} is missing"
    ]
    if what == "odd cell" and truth.kinds[name] != "category" and own:
        columns[name][row] = pick(rng, NO_NUMBER)
        good = len(own) == int(learned["gaps"])  # a column that never varied is not looked at
        expected[row, own] = 0.0
    elif what == "new category" and truth.kinds[name] == "category":
        columns[name][row], expected[row, own] = "Atlantis", 0.0
    elif what == "gap":
        columns[name][row] = None
        expected[row, own] = [_gap(fitted, names[i], name, learned) for i in own]
    elif what == "no column":
        del columns[name]
        columns["other"], good = [1.0] * len(truth), False
    elif what == "more":
        columns["id"] = [f"00{i}" for i in rows]
        rng.shuffle(keys := list(columns))
        columns = {key: columns[key] for key in keys}
    elif what == "twice" and len(used) > 1:
        rows = np.flatnonzero(rng.random(len(truth)) < 0.5) if rng.random() < 0.5 else rows[:1]
        rows = rows if len(rows) else np.arange(1)
        columns = {key: [values[i] for i in rows] for key, values in columns.items()}
    fresh = Truth({**columns, "y": [1.0] * len(rows)}, {}, "y")
    source = _source(rng, fresh, folder)
    place = "DataFrame" if isinstance(source, pd.DataFrame) else source.name
    try:
        inputs = read_inputs(source, fitted.preprocessing, "table")
    except DataError as error:
        refusal(error, place)
        if good:
            raise Silent(f"{what}: good rows were refused: {error}") from error
        return "refused"
    if not good:
        raise Silent(f"{what}: {name} of row {row} was taken")
    if inputs.x.shape != expected[rows].shape or not np.allclose(
        inputs.x, expected[rows], rtol=1e-5, atol=1e-5
    ):
        raise Silent(f"{what}: other inputs for {name} of row {row}")
    counts = [note.split(" rows ")[0] for note in inputs.notes]
    if counts != (unseen := _unseen(fitted.preprocessing["columns"], columns)):
        raise Silent(f"{what}: the notes are {inputs.notes}, expected {unseen}")
    return "right"


def _unseen(learned: list[dict[str, Any]], columns: dict[str, list[Any]]) -> list[str]:
    """How many rows of which columns have categories that training has not seen."""
    counts = []
    for column in learned:
        if column["type"] == "category":
            cells = columns[column["name"]]
            new = [v for v in cells if v is not None and v not in column["categories"]]
            counts += [f"{column['name']}: {len(new)} of {len(cells)}"] if new else []
    return counts


def _gap(fitted: Any, name: str, column: str, learned: dict[str, Any]) -> float:
    """What an input is where its column has a gap."""
    if name == f"{column} is missing":
        return 1.0
    if learned["type"] == "category":
        return 0.0
    if learned["type"] == "boolean":
        return float(learned["mean"])
    return (learned["median"] - learned["mean"]) / learned["scale"]


def _source(rng: Rng, fresh: Truth, folder: Path) -> Path | pd.DataFrame:
    if rng.random() < 0.3:
        return pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in fresh.columns.items()})
    mixed = any(len({type(v) for v in vs if v is not None}) > 1 for vs in fresh.columns.values())
    typed = (".jsonl", ".json") if mixed else TYPED_SUFFIXES
    return save(fresh, folder, pick(rng, (*TEXT_SUFFIXES, *typed)), rng)
