"""The training samples that a run keeps, to compare other samples with."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from evaluation_cases import FAST, images_of, table_of, untrained
from rnc.files import REFERENCE_FILE, read_tensors, write_tensors
from rnc.intervals.reference import read_reference
from rnc.model import Regressor
from rnc.run import reference as kept
from rnc.run.folder import RunFolder
from rnc.run.reference import reference_of
from rnc.training.recipes import build_regressor


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return untrained(tmp_path_factory.mktemp("run"), table_of())


def test_it_holds_all_training_samples_of_a_small_run(run: RunFolder) -> None:
    reference, table = read_reference(run.path), run.table
    rows = table.rows("train")
    assert reference.names.tolist() == table.names[rows].tolist()
    np.testing.assert_array_equal(reference.targets, table.y[rows])
    expected = Regressor.load(run.path).steady().embed_prepared(table.x, rows=rows)
    np.testing.assert_array_equal(reference.features, expected)
    assert (len(reference), reference.total) == (len(rows), len(rows))


def test_a_training_sample_is_its_own_nearest(run: RunFolder) -> None:
    reference = read_reference(run.path)
    known = reference.neighbours(k=3)
    distances, rows = known.nearest(reference.features)
    assert (rows[:, 0] == np.arange(len(reference))).all()
    assert (distances[:, 0] == 0).all()
    assert not known.is_out_of_range(reference.features).any()


def test_what_is_kept_spares_the_search_among_themselves(run: RunFolder) -> None:
    reference = read_reference(run.path)
    again = dataclasses.replace(
        reference, own=reference.own._replace(rows=reference.own.rows[:, :1])
    )
    new = reference.features[:9] + np.float32(0.1)
    np.testing.assert_allclose(
        reference.neighbours().difficulty(new), again.neighbours().difficulty(new), rtol=1e-5
    )


def test_of_many_samples_it_draws_the_same_ones_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_SAMPLES", 20)
    table = table_of()
    model = build_regressor(table, FAST)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second = reference_of(model, table), reference_of(model, table)
    assert torch.equal(before, torch.get_rng_state())
    assert first is not None
    assert second is not None
    assert len(first) == 20
    assert first.total == len(table.rows("train"))
    assert (
        first.names.tolist()
        == second.names.tolist()
        != table.names[table.rows("train")][:20].tolist()
    )
    monkeypatch.setattr(kept, "MOST_NUMBERS", 6 * first.features.shape[1])
    small = reference_of(model, table)
    assert small is not None
    assert len(small) == 6


def test_images_have_one_too(tmp_path: Path) -> None:
    table = images_of()
    model = build_regressor(table, dataclasses.replace(FAST, encoder="small-cnn", image_size=32))
    made = reference_of(model, table)
    assert made is not None
    made.save(tmp_path)
    read = read_reference(tmp_path)
    assert read.names[0] == "0.png"
    np.testing.assert_array_equal(read.features, made.features)


def test_samples_without_a_label_are_left_out() -> None:
    table = table_of()
    y = table.y.copy()
    y[table.rows("train")[:7]] = np.nan
    model = build_regressor(table, FAST)
    made = reference_of(model, dataclasses.replace(table, y=y))
    assert made is not None
    assert made.rows.tolist() == table.rows("train")[7:].tolist()


def test_a_training_that_diverged_has_none() -> None:
    table = table_of()
    model = build_regressor(table, FAST)
    with torch.no_grad():
        next(model.encoder.parameters()).fill_(torch.nan)
    assert reference_of(model, table) is None


def test_an_older_run_is_told_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"has no reference\.safetensors.*rnc evaluate .* --with neigh"
    ):
        read_reference(tmp_path)


@pytest.mark.parametrize("name", ["features", "targets", "names", "distances", "rows", "samples"])
def test_a_damaged_file_is_named(name: str, run: RunFolder, tmp_path: Path) -> None:
    tensors = read_tensors(run.path / REFERENCE_FILE)[0]
    write_tensors(tmp_path / REFERENCE_FILE, tensors | {name: tensors[name][:1]})
    with pytest.raises(
        ValueError, match=r"reference\.safetensors cannot be used.*rnc evaluate .* --with neigh"
    ):
        read_reference(tmp_path)
    write_tensors(tmp_path / REFERENCE_FILE, {k: v for k, v in tensors.items() if k != name})
    with pytest.raises(ValueError, match=f"there is no {name}"):
        read_reference(tmp_path)


def test_it_goes_with_the_run(tmp_path: Path) -> None:
    (tmp_path / REFERENCE_FILE).write_bytes(b"")
    RunFolder(tmp_path).delete()
    assert not (tmp_path / REFERENCE_FILE).exists()
