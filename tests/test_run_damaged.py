"""Files of a run folder with wrong types give an error that names the file."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evaluation_cases import fitted, houses
from rnc.cli import app
from rnc.files import write_json
from rnc.json_types import check_fields, check_json
from rnc.run.folder import RunFolder

CONFIGS: dict[str, Any] = {
    "model": [1],
    "model.kind": "film",
    "model.encoder": 3,
    "model.input_shape": None,
    "model.target_names": [1],
    "model.head.d": [1],
    "model.head.name": {},
    "model.head.scale": ["x"],
    "model.augment.noise": ["a"],
    "model.preprocessing.columns": {"a": 1},
    "model.preprocessing.columns.0": 3.5,
    "model.preprocessing.columns.0.scale": "x",
    "model.preprocessing.columns.0.type": "colour",
    "fit.seed": [1],
    "fit.crop_scale": "x",
    "fit.regularizer_weight": "x",
    "resolved.views": "",
    "data.subgroup_columns": [None],
    "rates": [],
    "fingerprint": 3,
}
SCORES: dict[str, Any] = {
    "test": 1e30,
    "test.mae": "low",
    "n": [],
    "n.test": "x",
    "subgroups.town.south": [1],
    "subgroups.town.south.n": [None],
    "baselines.median.mae": "x",
    "training": "x",
}


def damage(path: Path, where: str, value: Any) -> None:
    content = json.loads(path.read_text())
    *parents, last = where.split(".")
    part = content
    for name in parents:
        part = part[int(name) if name.isdigit() else name]
    part[int(last) if last.isdigit() else last] = value
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("runs")
    return fitted(folder / "run", houses(folder / "houses.csv"))


@contextlib.contextmanager
def damaged(path: Path, where: str, value: object) -> Iterator[Path]:
    """The file with another value at a place, until the block ends."""
    before = path.read_bytes()
    damage(path, where, value)
    try:
        yield path
    finally:
        path.write_bytes(before)


def said(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    return result.output.replace("\n", "")  # a narrow terminal breaks lines


@pytest.mark.parametrize("where", CONFIGS)
def test_a_damaged_config_is_named_with_the_place(where: str, run: RunFolder) -> None:
    with damaged(run.path / "config.json", where, CONFIGS[where]) as path:
        text = said("resume", run.path)
    assert f"{path} cannot be used: {where.split('.0')[0]}" in text
    assert "must be" in text


@pytest.mark.parametrize("where", SCORES)
def test_damaged_scores_are_named_with_the_place(where: str, run: RunFolder) -> None:
    with damaged(run.path / "scores.json", where, SCORES[where]) as path:
        text = said("evaluate", run.path)
    assert f"{path} cannot be used: {where}" in text
    assert f"Write it again with `rnc resume {run.path}`" in text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 2}', '{"format": []}', "[" * 9999]
)
def test_a_config_that_is_no_config_is_named(text: str, run: RunFolder, tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {})
    (tmp_path / "config.json").write_text(text)
    for words in (("resume", tmp_path), ("predict", tmp_path, "x.csv"), ("evaluate", tmp_path)):
        assert str(tmp_path) in said(*words)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, int, "x must be a whole number; got True"),
        (10**30, int, "x must be a whole number"),
        (float("inf"), float, "x must be a number; got inf"),
        ("a", int | None, "x must be a whole number; got 'a'"),
        ([1, "a"], list[int], r"x\[1\] must be a whole number; got 'a'"),
        ([1], tuple[int, int], "x must have 2 values; got 1"),
        ({"a": [1]}, dict[str, str], r"x.a must be a text; got \[1\]"),
        (3, dict[str, str], "x must be an object; got 3"),
        (3, tuple[int, ...], "x must be a list; got 3"),
    ],
)
def test_values_are_checked_by_their_type(value: Any, hint: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_json(value, hint, "x")


def test_fields_are_checked_by_name() -> None:
    with pytest.raises(ValueError, match="x needs path"):
        check_fields({}, RunFolder, "x")
    with pytest.raises(ValueError, match="x has colour, which is unknown"):
        check_fields({"path": None, "colour": 1}, RunFolder, "x")
    check_fields({"colour": 1}, RunFolder, "x", all_known=False, complete=False)
