"""Checkpoints of every version are continued; those of a later one say what to do."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

from rnc.files import read_tensors, write_tensors
from rnc.training.checkpoint import CHECKPOINT_FORMAT, ENCODER_FILE, read_stage
from rnc.training.recipes import build_regressor, train
from rnc.training.record import Record
from training_cases import columns, quick, same

LAST = Path("checkpoint", "last.safetensors")


def fit(folder: Path | None, epochs: int, **changes: Any) -> list[Record]:
    config = quick(epochs=4, **changes)
    model = build_regressor(columns(), config)
    with closing(cast("Generator[Record]", train(model, columns(), config, folder))) as records:
        return [replace(record, seconds=0.0) for record in islice(records, epochs)]


def rewrite(path: Path, change: Any) -> None:
    """Make a checkpoint one of another version."""
    tensors, note = read_tensors(path)
    write_tensors(path, *change(tensors, note))


def test_a_checkpoint_of_the_first_version_is_continued(tmp_path: Path) -> None:
    def first_version(tensors: dict[str, Any], note: dict[str, Any]) -> tuple[Any, Any]:
        assert note.pop("format") == CHECKPOINT_FORMAT
        old = {k.replace("/calibration.", "/fds."): v for k, v in tensors.items()}
        assert old != tensors
        return old, note

    fds = {"scheme": "end2end", "regularizer": "fds"}
    fit(tmp_path, 3, **fds)
    rewrite(tmp_path / LAST, first_version)
    assert fit(tmp_path, 4, **fds) == fit(None, 4, **fds)


def test_a_finished_stage_of_the_first_version_is_taken(tmp_path: Path) -> None:
    records = fit(tmp_path, 6)
    before = read_stage(tmp_path / ENCODER_FILE)
    rewrite(tmp_path / ENCODER_FILE, lambda tensors, note: (tensors, note["records"]))
    weights, fields = read_stage(tmp_path / ENCODER_FILE)
    assert same(weights, before[0])
    assert fields == before[1]
    assert len(fields) == 4
    assert fit(tmp_path, 6) == records


@pytest.mark.parametrize("file", [LAST, ENCODER_FILE])
def test_a_checkpoint_of_a_later_version_says_what_to_do(file: Path, tmp_path: Path) -> None:
    fit(tmp_path, 6, head_solver="sgd")
    rewrite(tmp_path / file, lambda tensors, note: (tensors, {**note, "format": 9}))
    (tmp_path / "checkpoint" / "head.safetensors").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=r"format 9, .* reads up to 2\. .*--overwrite\.$"):
        fit(tmp_path, 6, head_solver="sgd")
