"""Attacks on tables: odd headers, cells, rows, types, encodings and bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attack.harness import Silent, Verdict
from attack.tables_bad import BAD_FILES
from attack.tables_truth import (
    TEXT_SUFFIXES,
    TYPED_SUFFIXES,
    Case,
    Rng,
    Truth,
    check_table,
    make_truth,
    pick,
    refusal,
    save,
    save_text,
    written,
)
from rnc.data import DataError, Table, read_inputs, read_table

# fmt: off
ODD_NAMES = (
    " padded ", "a,b;c\td", 'quo"ted', "[/red]", "two\nlines", "名前", "=1+1", "y.1", "1", "0.5",
    "x" * 300, "name", "Group", "é", "None", "nan", "Unnamed: 0", "%s", "{0}", "..", "a/b",
)
# fmt: on


def try_table(rng: Rng, folder: Path) -> Verdict:
    """One attack: what is read must be right, and what must not be read is refused."""
    for old in folder.iterdir():
        old.unlink()
    make = pick(rng, ATTACKS)
    case: Case = make(rng, make_truth(rng), folder)
    place = "DataFrame" if isinstance(case.source, pd.DataFrame) else case.source.name
    try:
        table = read_table(case.source, target=case.truth.target, **case.options)
    except DataError as error:
        refusal(error, place)
        if case.expected == "right":
            raise Silent(f"{make.__name__}: good data were refused: {error}") from error
        return "refused"
    if case.expected == "refused":
        raise Silent(f"{make.__name__}: bad data were read")
    if case.check is not None:
        case.check(table)
        return "right"
    check_table(table, case.truth)
    if rng.random() < 0.3:
        _check_new_data(table, case, folder, rng)
    return "right"


def _check_new_data(table: Table, case: Case, folder: Path, rng: Rng) -> None:
    """The same rows as new data, in another order of columns and another type of file."""
    used = {column["name"] for column in table.preprocessing["columns"]}
    names = [name for name in case.truth.columns if name in used]
    rng.shuffle(names)
    kept = [i for i in range(len(case.truth)) if not np.isnan(case.truth.y[i])]
    columns = {name: [case.truth.columns[name][i] for i in kept] for name in names}
    fresh = Truth({"y": [1.0] * len(kept), **columns}, {}, "y")
    path = save(fresh, folder, pick(rng, (".csv", ".parquet", ".jsonl")), rng)
    inputs = read_inputs(path, table.preprocessing, "table")
    if not np.allclose(inputs.x, table.x, rtol=1e-5, atol=1e-6):
        raise Silent("the rows have other inputs as new data")


# ------------------------------------------------------------------------------------ good files


def plain_file(rng: Rng, truth: Truth, folder: Path) -> Case:
    suffix = pick(rng, (*TEXT_SUFFIXES, *TYPED_SUFFIXES, *TYPED_SUFFIXES))
    if rng.random() < 0.03 and "boolean" not in truth.kinds.values():  # Excel's are numbers there
        suffix = ".xlsx"
    formulas = any(str(value).startswith("=") for row in truth.cells() for value in row)
    expected = "refused" if suffix == ".xlsx" and formulas else "right"  # none is calculated
    return Case(save(truth, folder, suffix, rng), truth, expected)


def plain_frame(rng: Rng, truth: Truth, folder: Path) -> Case:
    truth.rows = [str(i) for i in range(len(truth))]
    frame = pd.DataFrame(truth.columns, index=rng.permutation(len(truth)))
    return Case(frame if rng.random() < 0.5 else frame.astype(object), truth)


def empty_lines(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Empty lines and lines of nothing but separators or blanks are ignored, and counted."""
    lines = [written([], [row]).split("\n", 1)[1] for row in truth.cells()]
    text, number, truth.rows = written(list(truth.columns), []), 2, []
    for line in lines:
        for _ in range(int(rng.integers(0, 2))):
            text += pick(rng, ("\n", "  \n", "," * (len(truth.columns) - 1) + "\n"))
            number += 1
        truth.rows.append(str(number))
        text, number = text + line, number + 1
    return Case(save_text(folder / "t.csv", text), truth)


def odd_names(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Names with blanks, quotes, separators, markup, line breaks and other scripts."""
    odd = list(ODD_NAMES)
    rng.shuffle(odd)
    suffix = pick(rng, (*TEXT_SUFFIXES, *TYPED_SUFFIXES))
    if suffix in TEXT_SUFFIXES:  # blanks before a name are no part of it, as in a cell
        odd = [name.lstrip() for name in odd]
    new = {name: name if name == "y" else odd.pop() for name in truth.columns}
    columns = {new[name]: values for name, values in truth.columns.items()}
    renamed = Truth(columns, {new[name]: kind for name, kind in truth.kinds.items()}, "y")
    return Case(save(renamed, folder, suffix, rng), renamed)


def missing_targets(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Rows without a target are refused, or left out and listed on request."""
    values = truth.columns["y"]
    for i in rng.permutation(len(truth))[: int(rng.integers(1, 6))]:
        values[i] = None
    drop = bool(rng.random() < 0.5)
    path = save(truth, folder, pick(rng, (*TEXT_SUFFIXES, *TYPED_SUFFIXES)), rng)
    return Case(path, truth, "right" if drop else "refused", {"drop_missing": drop})


def german_numbers(rng: Rng, truth: Truth, folder: Path) -> Case:
    """Decimal commas, with or without marks of thousands: read right or refused."""
    marks, given = bool(rng.random() < 0.5), pick(rng, (None, ","))
    separator = pick(rng, ",;\t")

    def german(value: Any) -> Any:
        if not isinstance(value, float) or abs(value) < 1e-3 or abs(value) > 1e12:
            return value
        text = f"{value:,.5f}" if marks else f"{value:.5f}"
        return text.translate(str.maketrans(",.", ".,"))

    columns = {}
    for name, values in truth.columns.items():
        number = name == "y" or truth.kinds[name] == "number"
        big = [v for v in values if v is not None and not 1e-3 <= abs(v) <= 1e12] if number else []
        truth.columns[name] = [
            v if v is None or not number or big else float(f"{v:.5f}") for v in values
        ]
        columns[name] = truth.columns[name] if big else [german(v) for v in truth.columns[name]]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    truth.rows = [str(i) for i in range(2, len(truth) + 2)]
    path = save_text(folder / "t.csv", written(list(columns), rows, separator))
    sure = given == "," or separator != ","
    return Case(path, truth, "right" if sure else "either", {"decimal": given})


ATTACKS = [
    plain_file,
    plain_frame,
    empty_lines,
    odd_names,
    missing_targets,
    german_numbers,
    *BAD_FILES,
]
