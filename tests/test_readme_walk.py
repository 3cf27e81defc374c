"""A newcomer types every line of README.md, in order, in a folder with data of their own.

The lines are taken from README.md itself. Those that train get flags that make them short, and
nothing else is changed.
"""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import dataset_copies
from rnc.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
SHORT = {"--epochs": "1", "--head-epochs": "1", "--image-size": "24"}
CHEAP = {
    "fit": SHORT,
    "search": {**SHORT, "--trials": "2"},
    "compare": {"--epochs": "1", "--head-epochs": "1", "--seeds": "1"},
    "reproduce": {**SHORT, "--seeds": "1", "--encoder": "small-cnn"},
    "resume": {"--epochs": "2"},
    "evaluate": {"--corruption-samples": "4"},
}


def commands() -> list[list[str]]:
    """The words of every line that begins with rnc."""
    lines = [line for language, block in BLOCKS if not language for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("rnc ")]


def cheap(words: list[str]) -> list[str]:
    """The same words, with flags that make a training short unless the line has them."""
    added = {flag: value for flag, value in CHEAP.get(words[0], {}).items() if flag not in words}
    return [*words, *(word for pair in added.items() for word in pair)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that README.md speaks of."""
    folder = tmp_path_factory.mktemp("newcomer")
    rng = np.random.default_rng(0)
    homes = pd.DataFrame(
        {
            "id": np.arange(120),
            "sold": pd.date_range("2020-01-31", periods=120, freq="9D").strftime("%Y-%m-%d"),
            "sqft": rng.normal(900, 200, 120).round(),
            "town": rng.choice(["Oslo", "Rome", "Bonn"], 120),
        }
    )
    homes.loc[3:9, "sqft"] = None
    homes["price"] = homes["sqft"].fillna(900) * 3 + 500 * (homes["town"] == "Oslo")
    homes.to_csv(folder / "houses.csv", index=False)
    homes.drop(columns="price").head(7).to_csv(folder / "new.csv", index=False)
    ages = photos(folder / "faces", 60)
    ages.to_csv(folder / "faces.csv", index=False)
    ages.tail(20).to_csv(folder / "other.csv", index=False)
    photos(folder / "photos", 3)
    x = rng.normal(size=(80, 2, 64)).astype(np.float32)
    np.savez(folder / "ecg.npz", x=x, y=x[:, 0].std(axis=1))
    dataset_copies.agedb(folder / "data")
    return folder


def photos(folder: Path, n: int) -> pd.DataFrame:
    """Photos that are brighter with age, not all of one shape."""
    rng, rows = np.random.default_rng(n), []
    folder.mkdir()
    for i in range(n):
        age = int(rng.integers(18, 80))
        pixels = np.clip(rng.normal(age * 2, 20, (40, 30 + 10 * (i % 2), 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.jpg")
        rows.append({"file": f"{i:03d}.jpg", "age": age})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def walked(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What every line printed, after all of them ran one after the other."""
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for words in commands():
            result = CliRunner().invoke(app, cheap(words[1:]), env={"COLUMNS": "200"})
            line = shlex.join(words)
            assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
            printed[line] = result.output
    return printed


@pytest.mark.slow
def test_every_command_works_as_it_is_printed(walked: dict[str, str], home: Path) -> None:
    assert len(walked) == len(commands()) >= 16
    for run in ("houses", "age", "l1", "ecg", "supcon", "ranksim"):
        assert (home / "runs" / run / "report.html").exists()
    assert list(pd.read_csv(home / "ages.csv").columns) == ["name", "age"]
    assert list(pd.read_csv(home / "prices.csv")["id"]) == list(range(7))
    assert len(np.load(home / "features.npz")["features"]) == 7


@pytest.mark.slow
def test_fit_ends_with_the_answer(walked: dict[str, str]) -> None:
    said = next(text for line, text in walked.items() if line.startswith("rnc fit houses.csv"))
    assert "price: off by " in said
    assert "guessing the median: " in said
    assert "gradient boosting (scikit-learn): " in said
    for word in ("sqft", "town", "sold", "id"):
        assert word in said


@pytest.mark.slow
def test_the_python_lines_run_in_the_same_folder(
    walked: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    seen: dict[str, Any] = {
        "X": np.random.rand(100, 3),
        "y": np.random.rand(100),
        "w": np.random.rand(100),
        "X_new": np.random.rand(5, 3),
        "y_new": np.random.rand(5),
        "w_new": np.random.rand(5),
        "features": torch.randn(8, 4, requires_grad=True),
        "targets": torch.arange(8.0),
    }
    blocks = [block for language, block in BLOCKS if language == "python"]
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), seen)
    assert seen["run"].path == Path("runs/homes")
    told = pd.read_csv("ages.csv")["age"].to_numpy()
    np.testing.assert_array_equal(seen["model"].predict("photos/")[:, 0], told)
    shutil.rmtree("runs/homes")
