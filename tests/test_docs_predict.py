"""docs/predict.md: every command and every line of Python in it runs."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from rnc.cli import app

TEXT = (Path(__file__).parent.parent / "docs" / "predict.md").read_text(encoding="utf-8")
FAST = "--preset quick --epochs 1 --batch-size 16 --device cpu"


def rnc(line: str) -> str:
    result = CliRunner().invoke(app, shlex.split(line, comments=True))
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.stdout


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data and the runs that the page takes for granted."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    area, town = rng.uniform(50, 200, 60).round(1), rng.choice(["north", "south"], 60)
    homes = pd.DataFrame({"id": [f"{i:03d}" for i in range(60)], "area": area, "town": town})
    homes["price"] = 3 * area + 40 * (town == "north")
    for name in ("homes.csv", "more.csv"):
        homes.to_csv(name, index=False)
    Path("photos").mkdir()
    age = rng.integers(20, 200, 40)
    for i, level in enumerate(age):
        noise = rng.integers(0, 30, (20, 26, 3))
        Image.fromarray((level + noise).astype(np.uint8)).save(f"photos/{i}.jpg")
    Image.open("photos/0.jpg").save("new.jpg")
    files = [f"{i}.jpg" for i in range(40)]
    pd.DataFrame({"file": files, "age": age}).to_csv("faces.csv", index=False)
    x = rng.normal(size=(40, 2, 50)).astype(np.float32)
    np.savez("ecg.npz", x=x, y=x.mean(axis=(1, 2)))
    quantiles = "--head quantile --head-option levels=0.1,0.5,0.9"
    rnc(f"fit homes.csv --target price --exclude-column id {quantiles} {FAST} --out runs/price")
    small = "--encoder small-cnn --image-size 16"
    rnc(f"fit faces.csv --images photos --target age {small} {FAST} --out runs/age")
    rnc(f"fit ecg.npz --encoder resnet1d10 {FAST} --out runs/ecg")
    return tmp_path


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_every_line_runs(somewhere: Path) -> None:
    lines = re.findall(r"^rnc (predict .*)$", TEXT, flags=re.MULTILINE)
    assert len(lines) == 7
    printed = [rnc(line) for line in lines]
    assert printed[4].splitlines()[0] == "name,id,price_given,price"
    assert {"predictions.csv", "new.csv", "prices.parquet", "features.npz", "ecg.csv"} <= {
        path.name for path in somewhere.iterdir()
    }
    prices = pd.read_parquet("prices.parquet")
    assert prices["name"].tolist()[:1] + prices["id"].tolist()[:2] == ["homes.csv:2", "000", "001"]
    seen: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for place, block in enumerate(blocks, start=1):
        exec(compile(block, f"docs/predict.md, block {place}", "exec"), seen)
    assert seen["model"].embed("ecg.npz").shape[0] == 40
