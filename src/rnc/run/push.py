"""Push a run to the Hugging Face Hub (extra: hub): what a model needs, and a model card.

    config.json               as in the run, but file names without their folders
    model.safetensors         the weights
    calibration.safetensors   predictions and targets of the calibration rows, for intervals
    reference.safetensors     only if asked for: features, targets and names of training samples
    README.md                 see `rnc.run.card`

Without the reference, the kinds of intervals are chosen again, among those that do not need it.
Checkpoints, histories, predictions, pictures and reports are not published.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from rnc.files import (
    CONFIG_FILE,
    MODEL_FILE,
    REFERENCE_FILE,
    contents,
    write_file,
    write_json,
    write_text,
)
from rnc.hub import HUB_FILES, hub_errors, parse_repository
from rnc.intervals import CalibrationRows, Spread
from rnc.intervals.calibration import CHOSEN_AT
from rnc.intervals.choice import with_kinds
from rnc.model import Regressor
from rnc.model.intervals import kept_calibration, quantiles_of
from rnc.run.card import model_card
from rnc.run.folder import RunFolder

CARD_FILE = "README.md"


def write_layout(
    run: RunFolder,
    folder: Path,
    repository: str,
    *,
    with_reference: bool = False,
    licence: str | None = None,
) -> list[str]:
    """Write the files for the hub into an empty folder; returns their names.

    Args:
        run: a finished run.
        folder: an empty folder; it is created if needed.
        repository: owner/name on the hub, for the card.
        with_reference: also write features, targets and names of training samples.
        licence: the licence of the model, such as "apache-2.0".
    """
    parse_repository(repository)
    if not run.is_finished:
        run.scores  # noqa: B018  # says that the run is not finished, and what to do
    model = Regressor.load(run.path)
    if folder.exists() and (not folder.is_dir() or contents(folder)):
        raise FileExistsError(f"{folder} is not empty. Choose a folder that is new, with --to.")
    if with_reference and not (run.path / REFERENCE_FILE).exists():
        raise FileNotFoundError(f"{run.path} has no {REFERENCE_FILE}. Leave out --with-reference.")
    config = published_config(run.config)
    write_json(folder / CONFIG_FILE, config)
    _copy(run.path, folder, MODEL_FILE)
    calibration = kept_calibration(model)
    if calibration is not None:
        kept = calibration if with_reference else without_neighbours(model, calibration)
        kept.write(folder)
    if with_reference:
        _copy(run.path, folder, REFERENCE_FILE)
    names = [name for name in HUB_FILES if (folder / name).exists()]
    card = model_card(run, repository, licence=licence, config=config, files=names)
    write_text(folder / CARD_FILE, card)
    return [name for name in HUB_FILES if (folder / name).exists()]


def _copy(source: Path, folder: Path, name: str) -> None:
    write_file(folder / name, lambda temporary: shutil.copyfile(source / name, temporary))


def without_neighbours(model: Regressor, rows: CalibrationRows) -> CalibrationRows:
    """The calibration rows, with kinds of intervals that need no training samples."""
    plain = dataclasses.replace(rows, difficulty=None, kinds=(), joint_kind="plain")
    if "quantiles" not in plain.known_kinds:
        return with_kinds(plain)
    assert plain.outputs is not None
    return with_kinds(plain, Spread(None, *quantiles_of(model, plain.outputs, CHOSEN_AT)))


def published_config(config: dict[str, Any]) -> dict[str, Any]:
    """config.json without hashes of data, and with file names instead of absolute paths.

    >>> published_config({"command": "rnc fit /home/ada/faces.csv --out runs/age"})
    {'command': 'rnc fit faces.csv --out runs/age'}
    """
    shown = dict(config)
    shown.pop("fingerprint", None)
    for name in shown.keys() - {"model", "data", "command"}:  # a column may be called /h
        shown[name] = _without_folders(shown[name])
    if isinstance(shown.get("data"), dict):
        paths = {name: shown["data"][name] for name in _PATHS if name in shown["data"]}
        shown["data"] = shown["data"] | _without_folders(paths)
    if isinstance(shown.get("command"), str):
        shown["command"] = " ".join(map(_without_folders, shown["command"].split(" ")))
    return shown


_PATHS = ("source", "images", "dataset_options")  # fields of a DataSource


def _without_folders(value: Any) -> Any:
    """The value, with each absolute path in it replaced by its last part."""
    if isinstance(value, dict):
        return {name: _without_folders(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_folders(part) for part in value]
    if not isinstance(value, str):
        return value
    flag, equals, path = value.rpartition("=")
    is_path = path.startswith(("/", "~")) or path[1:3] in (":\\", ":/")
    return f"{flag}{equals}{PurePath(path.replace(chr(92), '/')).name}" if is_path else value


def push_run(
    run: RunFolder,
    repository: str,
    *,
    with_reference: bool = False,
    licence: str | None = None,
    public: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> str:
    """Write a run to a repository on the hub, created if needed; returns its address.

    Args:
        run: as for `write_layout`.
        repository: owner/name.
        with_reference: as for `write_layout`.
        licence: as for `write_layout`.
        public: create a repository that all can see, or allow an existing one to be public.
        tell: called with a line for the user before anything is sent.
    """
    with hub_errors(repository, writes=True), tempfile.TemporaryDirectory() as name:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

        names = write_layout(
            run, Path(name) / "run", repository, with_reference=with_reference, licence=licence
        )
        tell(f"To {repository}, {'public' if public else 'private'}: {', '.join(names)}")
        api = HfApi(library_name="rank-n-contrast")
        made = api.create_repo(repository, private=not public, exist_ok=True)
        if not public and api.repo_info(repository).private is False:
            raise ValueError(
                f"{repository} is public: all could see the model. Add --public if they may, or "
                "make the repository private on its page."
            )
        old = [one for one in api.list_repo_files(repository) if one in HUB_FILES]
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd(path_in_repo=one, path_or_fileobj=Path(name) / "run" / one)
            for one in names
        ]
        # Files of an earlier run here would be taken for files of this one.
        operations += [CommitOperationDelete(path_in_repo=one) for one in set(old) - set(names)]
        message = f"Write a run of {', '.join(run.targets)}"[:72]
        api.create_commit(repository, operations, commit_message=message)
    return str(made)
