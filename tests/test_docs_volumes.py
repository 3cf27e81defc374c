"""docs/volumes.md: every command and every line of Python runs; its table has our results."""

import csv
import re
import shlex
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rnc.cli import app

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "volumes.md").read_text(encoding="utf-8")


def rnc(line: str) -> str:
    fast = " --device cpu --epochs 1" if line.startswith("rnc fit") else ""
    fast += " --volume-size 9 --batch-size 8" if "scans.csv" in line else ""
    result = CliRunner().invoke(app, shlex.split(line + fast, comments=True)[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.stdout


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nibabel = pytest.importorskip("nibabel")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng, rows = np.random.default_rng(0), []
    for folder in ("scans", "new-scans"):
        Path(folder).mkdir()
        for i in range(40 if folder == "scans" else 3):
            age = rng.uniform(20, 90)
            values = (rng.normal(size=(9, 10, 9)) + age / 10).astype(np.float32)
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), f"{folder}/s{i:02d}.nii.gz")
            rows += [{"scan": f"s{i:02d}.nii.gz", "age": age}] if folder == "scans" else []
    pd.DataFrame(rows).to_csv("scans.csv", index=False)
    blocks = re.findall(r"^```(python|bash)\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    seen: dict[str, Any] = {}
    for place, (language, block) in enumerate(blocks, start=1):
        if language == "python":
            exec(compile(block, f"docs/volumes.md, block {place}", "exec"), seen)
            continue
        for line in block.splitlines():
            if line.startswith("rnc"):
                rnc(line)
    assert len(pd.read_csv("ages.csv")) == 3
    assert seen["run"].config["model"]["kind"] == "volume"
    assert Path("runs/queue/report.html").exists()


def test_the_table_is_that_of_the_results() -> None:
    with (ROOT / "benchmarks" / "results" / "volumes.csv").open() as file:
        rows = list(csv.DictReader(file))
    shown = dict(re.findall(r"^\| (l1|rnc[^|]*?) \| (.*) \|$", TEXT, flags=re.MULTILINE))
    assert set(shown) == {row["method"] for row in rows}
    for method, cells in shown.items():
        own = [row for row in rows if row["method"] == method]
        seeds, *scores = cells.split(" | ")
        assert int(seeds) == len({row["seed"] for row in own}) == len(own)
        for (name, digits), cell in zip(_SHOWN.items(), scores, strict=True):
            values = [float(row[name]) for row in own]
            low, high = (f"{f(values):.{digits}f}" for f in (min, max))
            around = f" ({low} to {high})" if len(own) > 1 else ""
            assert cell == f"{mean(values):.{digits}f}{around}", (method, name)


_SHOWN = {"test_mae": 3, "test_r2": 3, "scanner": 2}
