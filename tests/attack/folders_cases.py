"""Damaged run folders: a file is cut off, emptied, deleted, flipped, or holds other types."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from attack.harness import Lost, Silent, Verdict
from evaluation_cases import fitted, houses, with_config
from rnc.cli import app

VALUES: list[Any] = [
    None, True, 0, -1, 3.5, "x", "", [], {}, [1], {"a": 1}, [None], ["a"], 1e30, 10**30, [[1]]
]  # fmt: skip
QUICK = ("--preset", "quick", "--head-epochs", "1", "--out")
COMMANDS = ("predict", "evaluate", "other", "report", "resume", "map", "encoder")


class DamagedRuns:
    """A finished run, copies of which are damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.copy = folder, folder / "run", folder / "copy"
        self.source = houses(folder / "houses.csv")
        fitted(self.run, self.source, with_config(scheme="finetune"))
        pd.read_csv(self.source).head(5).to_csv(folder / "new.csv", index=False)
        self.files = sorted(p.relative_to(self.run) for p in self.run.rglob("*") if p.is_file())
        self._start_anew()
        assert self._call("predict").exit_code == 0
        self.predictions = (folder / "p.csv").read_bytes()
        self.weights = (self.run / "model.safetensors").read_bytes()

    def try_damage(self, rng: np.random.Generator) -> Verdict:
        """Damage a file and call a command: it is right, or says what is wrong."""
        self._start_anew()
        name = self.files[rng.integers(len(self.files))]
        if rng.random() < 0.5:  # half of the cases are about the two files that all commands read
            name = Path(str(rng.choice(["config.json", "scores.json"])))
        how, command = damage(self.copy / name, rng), str(rng.choice(COMMANDS))
        result, case = self._call(command), f"{command} after {name} was {how}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code != 0:
            if "rnc: " not in result.output and "Usage" not in result.output:
                raise Silent(f"{case}: exit code {result.exit_code} without a message")
            return "refused"
        if command == "predict" and (self.folder / "p.csv").read_bytes() != self.predictions:
            raise Silent(f"{case}: other predictions")
        weights = self.copy / "model.safetensors"
        if command == "resume" and str(name) != "config.json":
            if weights.read_bytes() != self.weights:
                raise Silent(f"{case}: another model")
            if not (self.copy / "scores.json").exists():
                raise Lost(f"{case}: no scores")
        return "right"

    def _start_anew(self) -> None:
        for path in (self.copy, self.folder / "e", self.folder / "o"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.run, self.copy)

    def _call(self, command: str) -> Any:
        run, folder, source = str(self.copy), self.folder, str(self.source)
        words = {
            "predict": ["predict", run, folder / "new.csv", "-o", folder / "p.csv", "--overwrite"],
            "evaluate": ["evaluate", run],
            "other": ["evaluate", run, "--data", source, "--out", folder / "o"],
            "report": ["report", run, "--out", folder / "r.html"],
            "resume": ["resume", run],
            "map": ["evaluate", run, "--with", "map", "--map-method", "pca"],
            "encoder": [
                "fit",
                source,
                "--target",
                "price",
                "--encoder-from",
                run,
                *QUICK,
                folder / "e",
            ],
        }
        return CliRunner().invoke(app, [str(word) for word in words[command]])


def damage(path: Path, rng: np.random.Generator) -> str:
    """Damage a file; what was done, in words."""
    content = path.read_bytes()
    kinds = ["cut", "emptied", "deleted", "overwritten"]
    kinds += ["retyped"] * 12 if path.suffix == ".json" and content else []
    kinds += ["flipped"] * 4 if path.suffix == ".safetensors" and content else []
    how = str(rng.choice(kinds))
    if how == "cut":
        path.write_bytes(content[: rng.integers(len(content))])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "deleted":
        path.unlink()
    elif how == "overwritten":
        path.write_bytes(rng.bytes(len(content)))
    elif how == "flipped":
        changed = bytearray(content)
        changed[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
    else:
        return _retype(path, rng)
    return how


def _retype(path: Path, rng: np.random.Generator) -> str:
    """Put a value of another type in some place of a JSON file, or leave an entry out."""
    content = json.loads(path.read_text())
    places = list(_places(content))
    *parents, last = places[rng.integers(len(places))]
    part = content
    for key in parents:
        part = part[key]
    others = [value for value in VALUES if not _alike(value, part[last])]
    if rng.random() < 0.1 and isinstance(part, dict):
        del part[last]
        how = f"without {[*parents, last]}"
    else:
        part[last] = others[rng.integers(len(others))]
        how = f"retyped at {[*parents, last]}: {part[last]!r}"
    path.write_text(json.dumps(content))
    return how


def _alike(one: Any, other: Any) -> bool:
    """Whether two values have one type: a number that changed to another one shows nothing."""
    numbers = (int, float)
    both = isinstance(one, numbers) and isinstance(other, numbers)
    return both or type(one) is type(other)


def _places(content: Any, where: tuple[Any, ...] = ()) -> Any:
    pairs: Any = ()
    if isinstance(content, dict):
        pairs = content.items()
    elif isinstance(content, list):
        pairs = enumerate(content)
    for key, value in pairs:
        yield (*where, key)
        yield from _places(value, (*where, key))
