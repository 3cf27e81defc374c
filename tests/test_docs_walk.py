"""Run every block of README.md and of the pages like a newcomer, in a folder with own data.

The lines are those of the pages, except that presets train for one epoch and flags that cost time
get small values. Runs that pages assume to exist are made once, by the pages of the first steps.
"""

import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import dataset_copies
import rnc
from doc_blocks import BLOCKS, ROOT, Block
from rnc.cli import app
from rnc.config import presets

FIRST = ("docs/tables.md", "docs/photos.md", "docs/signals.md")
WALKED = [block for block in BLOCKS if block.is_walked]
PAGES = list(dict.fromkeys(block.page for block in WALKED if block.page not in FIRST))
TRAINING = ("fit", "search", "compare", "reproduce")
SMALL = {
    "--epochs": "1",
    "--head-epochs": "1",
    "--seeds": "1",
    "--trials": "1",
    "--batch-size": "16",
    "--chunk": "8",
    "--queue": "16",
    "--image-size": "24",
    "--corruption-samples": "4",
}
"""Values that replace those of a page."""


QUICK_ANALYSES = ["--corruption-samples", "4", "--map-method", "pca"]


def pages_say(page: str) -> list[Block]:
    return [block for block in WALKED if block.page == page]


def cheap(words: list[str]) -> list[str]:
    """The same words, with small values of flags, and a small network for photos."""
    small = SMALL | ({"--epochs": "2"} if words[0] == "resume" else {})
    words = [small.get(flag, word) for flag, word in zip(["", *words], words, strict=False)]
    with_images = {"--images", "--root"} & set(words) and "--encoder-from" not in words
    if words[0] not in TRAINING:
        return words + (QUICK_ANALYSES if "--with" in words else [])
    words += ["--trials", "1"] if words[0] == "search" and "--trials" not in words else []
    words += ["--seeds", "1"] if words[0] in TRAINING[2:] and "--seeds" not in words else []
    if "--freeze" in words and "--epochs" not in words:
        words += ["--epochs", "1"]
    if with_images and "--image-size" not in words:
        words += ["--image-size", "24"]
    if with_images and "--encoder" not in words:
        words += ["--encoder", "small-cnn"]
    return words


class Newcomer:
    """Types blocks in a folder; a line that was typed before is not typed again."""

    def __init__(self) -> None:
        self.printed: dict[str, str] = {}
        self.typed = 0
        self.written: set[str] = set()
        self.granted: set[str] = set()

    def walk(self, page: str) -> dict[str, Any]:
        """Run the blocks of a page in order; the names that they leave."""
        names = taken_for_granted()
        self.written = set()
        for block in pages_say(page):
            if block.language == "python":
                for place in re.findall(r"out=\"(.*?)\"", block.text):
                    self.clear(place, block.place)
                code = "\n" * block.line + block.text
                exec(compile(code, block.page, "exec"), names)
            else:
                self.shell(block)
            self.typed += 1
        return names

    def shell(self, block: Block) -> None:
        for line in block.lines():
            words = shlex.split(line, comments=True)
            where = f"{block.place}: {line}"
            if words[0] == "python":
                runpy.run_path(str(ROOT / words[1]), run_name="__main__")
                continue
            assert words[0] == "rnc", f"{where}\nMark the block <!-- not run: REASON -->."
            self.rnc(cheap(words[1:]), where)

    def rnc(self, words: list[str], where: str) -> None:
        line = shlex.join(words)
        if line in self.printed:
            return
        for flag in {"--out", "-o"} & set(words):
            self.clear(words[words.index(flag) + 1], where)
        result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert result.exit_code == 0, f"{where}\n{result.output}\n{result.exception!r}"
        self.printed[line] = result.output

    def clear(self, place: str, where: str) -> None:
        """Delete what another page left where this line writes."""
        assert place not in self.granted, f"{where}\nOther pages use {place}: write to another one."
        if place not in self.written and Path(place).is_dir():
            shutil.rmtree(place)
        elif place not in self.written:
            Path(place).unlink(missing_ok=True)
        self.written.add(place)


def taken_for_granted() -> dict[str, Any]:
    """Names that blocks use without saying where they come from."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3))
    return {
        "__name__": "page",
        "rnc": rnc,
        "np": np,
        "torch": torch,
        "Path": Path,
        "FitConfig": rnc.FitConfig,
        "RnCRegressor": rnc.RnCRegressor,
        "X": x,
        "y": x[:, 0],
        "w": rng.random(100),
        "X_new": rng.normal(size=(5, 3)),
        "y_new": rng.normal(size=5),
        "w_new": rng.random(5),
        "features": torch.randn(8, 4, requires_grad=True),
        "targets": torch.arange(8.0),
        "table": rnc.table_from_arrays(x, x[:, 0]),
        "path": Path("runs/houses"),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """In a folder with the files that pages speak of, after the pages of the first steps."""
    folder, newcomer = tmp_path_factory.mktemp("newcomer"), Newcomer()
    short = {name: one_epoch(preset) for name, preset in presets._PRESETS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(presets, "_PRESETS", short)
        write_files()
        for page in FIRST:
            newcomer.walk(page)
        newcomer.granted = {path.as_posix() for path in Path("runs").iterdir()} - {"runs/homes"}
        yield newcomer


def one_epoch(preset: Any) -> Any:
    def values(*args: Any) -> dict[str, Any]:
        return preset(*args) | {"epochs": 1, "head_epochs": 1, "warm_up": 0}

    return values


def write_files() -> None:
    """houses.csv, faces.csv, ecg.npz and what else pages begin with."""
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
    homes.to_csv("houses.csv", index=False)
    homes.drop(columns="price").head(7).to_csv("new.csv", index=False)
    homes.tail(30).to_csv("sold.csv", index=False)
    ages = photos(Path("faces"), 100)
    ages.to_csv("faces.csv", index=False)
    ages.assign(years=ages["age"]).tail(30).to_csv("other.csv", index=False)
    photos(Path("photos"), 3)
    shutil.copytree("faces", "others")
    people = pd.DataFrame({"cm": rng.normal(170, 9, 90), "kg": rng.normal(70, 9, 90)})
    people["age"] = (people["cm"] - 130).round().astype(int).astype(str)
    people.loc[60:, "age"] = [">90", "<5", "20-29", ""] * 7 + ["", ""]
    people.to_csv("people.csv", index=False)
    patients = people[["cm", "kg"]].assign(days=people["cm"].round(), died=[0, 1, 1] * 30)
    patients.to_csv("patients.csv", index=False)
    x = rng.normal(size=(80, 2, 64)).astype(np.float32)
    np.savez("ecg.npz", x=x, y=x[:, 0].std(axis=1))
    dataset_copies.agedb(Path("data"))


def photos(folder: Path, n: int) -> pd.DataFrame:
    """Photos that are brighter with age, not all of one shape."""
    rng, rows = np.random.default_rng(n), []
    folder.mkdir()
    for i in range(n):
        age = int(rng.integers(18, 80))
        pixels = np.clip(rng.normal(age * 2, 20, (40, 38 + 2 * (i % 2), 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03d}.jpg")
        rows.append({"file": f"{i:03d}.jpg", "age": age})
    return pd.DataFrame(rows)


def test_the_first_steps_lead_to_runs_and_predictions(home: Newcomer) -> None:
    for run in ("houses", "age", "l1", "pulse", "homes"):
        assert Path("runs", run, "report.html").exists()
    assert list(pd.read_csv("ages.csv").columns) == ["name", "age"]
    assert list(pd.read_csv("prices.csv")["id"]) == list(range(7))
    assert len(np.load("features.npz")["features"]) == 7
    assert {"age_lower", "age_upper"} <= set(pd.read_csv("sure.csv").columns)


def test_fit_ends_with_the_answer(home: Newcomer) -> None:
    said = next(text for line, text in home.printed.items() if line.startswith("fit houses.csv"))
    assert "price: off by " in said
    assert "guessing the median: " in said
    assert "gradient boosting (scikit-learn): " in said
    for word in ("sqft", "town", "sold", "id"):
        assert word in said


def test_python_and_the_command_predict_the_same(home: Newcomer) -> None:
    told = pd.read_csv("ages.csv")["age"].to_numpy()
    np.testing.assert_array_equal(rnc.load("runs/age").predict("photos/")[:, 0], told)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str, home: Newcomer) -> None:
    before = home.typed
    home.walk(page)
    assert home.typed - before == len(pages_say(page)) > 0
