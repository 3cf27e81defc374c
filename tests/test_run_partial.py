"""Runs on data whose targets are known in part."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rnc
from rnc.data.errors import DataWarning
from rnc.run.fit import resume_run

FAST = {"preset": "quick", "device": "cpu", "target": "age", "partial_labels": True}


def ages(path: Path) -> Path:
    """120 people, of whom half have an age."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    years = 40 + 10 * x[:, 0] + 5 * x[:, 1]
    cells = [f"{age:.1f}" for age in years]
    for row, age in enumerate(years[::2]):
        low = 10 * (age // 10)
        cells[2 * row] = ["", f"{low:g}-{low + 10:g}", f">{age - 3:.1f}"][row % 3]
    pd.DataFrame(x, columns=list("abc")).assign(age=cells).to_csv(path, index=False)
    return path


def test_a_run_is_resumed_and_counts_its_rows(tmp_path: Path) -> None:
    source = ages(tmp_path / "ages.csv")
    run = rnc.fit(source, out=tmp_path / "run", epochs=2, **FAST)
    sizes = {"labelled": 42, "encoder": 102, "ranged": 40}
    assert run.config["sizes"] == sizes == run.sizes._asdict()
    assert run.config["data"]["partial_labels"]
    assert run.config["resolved"]["batch_size"] == 16
    assert run.scores["n"] == {"train": 42, "val": 6, "test": 12, "partial": 60}
    assert run.scores["training"]["updates"] == 2 * (102 // 16)
    assert run.train_targets.shape == (42, 1)
    assert run.scores["test"]["mae"] < 6
    assert len(list(resume_run(run.path, epochs=4))) == 5
    scores = json.loads((run.path / "scores.json").read_text())
    assert scores["training"]["updates"] == 4 * (102 // 16)


def test_python_hears_of_rows_that_nothing_trains_on(tmp_path: Path) -> None:
    source = ages(tmp_path / "ages.csv")
    with pytest.warns(DataWarning, match=r"20 rows without a target are not used: a head's"):
        rnc.fit(source, out=tmp_path / "run", epochs=1, scheme="end2end", **FAST)


def test_other_cells_than_numbers_need_to_be_asked_for(tmp_path: Path) -> None:
    options = FAST | {"partial_labels": False}
    with pytest.raises(ValueError, match="row 4: age is '50-60', expected a number"):
        rnc.fit(ages(tmp_path / "ages.csv"), out=tmp_path / "run", **options)
