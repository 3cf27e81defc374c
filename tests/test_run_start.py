"""Errors that would come after training are raised before it; a killed run leaves no obstacle."""

from pathlib import Path

import pytest

from evaluation_cases import data_of, houses, with_config
from rnc.data.errors import DataError
from rnc.files import LOCK_FILE, contents
from rnc.run.fit import check_before_data, fit_run
from rnc.run.folder import RunFolder
from rnc.run.other import evaluate_other
from rnc.search.folder import check_folder
from training_cases import columns, quick


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (("name",), "predictions.csv would have column 'name' twice"),
        (("price", "price_predicted"), "'price_predicted' twice.*Rename the target"),
    ],
)
def test_names_that_collide_are_told_before_training(
    target: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    source = houses(tmp_path / "houses.csv", name=range(160), price_predicted=range(160))
    data = data_of(source, target=target)
    with pytest.raises(DataError, match=message):
        next(fit_run(data.read(224), with_config(scheme="end2end"), tmp_path / "run", data=data))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": "nope"}, "similarity must be one of l2, l1, cosine.*got 'nope'"),
        ({"label_distance": "nope"}, "label_distance must be one of l1, l2, .*got 'nope'"),
    ],
)
def test_names_that_evaluation_needs_are_told_whatever_the_scheme(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        quick(scheme="end2end", **options)


def test_a_distance_that_the_targets_do_not_have_is_told_before_training(tmp_path: Path) -> None:
    config = quick(scheme="end2end", label_distance="angular")
    with pytest.raises(ValueError, match="pitch and yaw"):
        next(fit_run(columns(), config, tmp_path / "run"))


def left_by_a_kill(folder: Path) -> Path:
    """A folder as a process leaves it that is killed in its first write."""
    folder.mkdir()
    for name in (".config.json.x1.part", LOCK_FILE):
        (folder / name).write_text("")
    assert contents(folder) == []
    return folder


def test_a_folder_that_a_kill_left_in_the_first_write_takes_a_run(tmp_path: Path) -> None:
    out = left_by_a_kill(tmp_path / "run")
    check_before_data(quick(), out)
    list(fit_run(columns(), quick(), out))
    assert RunFolder(out).is_finished
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def test_it_takes_a_study_and_an_evaluation_too(tmp_path: Path) -> None:
    check_folder(left_by_a_kill(tmp_path / "study"))
    source, out = houses(tmp_path / "houses.csv"), left_by_a_kill(tmp_path / "other")
    data = data_of(source)
    list(fit_run(data.read(224), with_config(), tmp_path / "run", data=data))
    evaluate_other(tmp_path / "run", source, out=out)
    assert RunFolder(out).is_finished
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
