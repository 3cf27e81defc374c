"""Checks before a run starts: of the folder, the encoder, and the run that it continues.

`check_before_data` needs no data, so that mistakes are reported before images are decoded.
"""

import os
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from rnc.config import SPEED_ONLY, FitConfig
from rnc.config.checks import check_frozen
from rnc.data.datasets.registry import find_dataset
from rnc.data.inputs import essential
from rnc.data.table import Table
from rnc.encoders import check_encoder
from rnc.files import MODEL_FILE, contents, read_tensors
from rnc.lock import check_free
from rnc.loss.distributed import is_first_process
from rnc.loss.pairwise import distances_of
from rnc.model import ModelConfig, Regressor, read_config, without_head
from rnc.run.folder import ANALYSES_FOLDER, HISTORY_FILE, SCORES_FILE, RunFolder
from rnc.run.predictions import check_target_names
from rnc.training.checkpoint import ENCODER_FILE, forget_later_stages, read_stage

AnySource = TypeVar("AnySource")
LENGTHS = ("epochs", "head_epochs")
"""Fields that a resumed run may change, to train for more epochs."""
_STAGES = {"epochs": ("encoder", "end2end", "regularize"), "head_epochs": ("finetune",)}


def check_before_data(
    config: FitConfig,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    encoder_from: Path | None = None,
    own: bool = False,
) -> None:
    """Raise for every mistake that can be found before the data are read.

    With `own`, the encoder is a module of the caller.
    """
    check_frozen(config, own=own or resume)
    if not (resume and RunFolder(out).exists):  # a resumed run has its encoder already
        check_encoder(
            config.encoder,
            image_size=config.image_size,
            pretrained=config.pretrained,
            weights=config.weights,
        )
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device='cuda' was asked for, but torch sees no GPU. Use --device cpu, or install a "
            "torch build that fits the driver."
        )
    if is_first_process():  # a later process may see the folder that this run made
        check_folder_state(out, config, resume=resume, overwrite=overwrite)
    if resume:
        encoder_from = same_source(RunFolder(out), encoder_from)
    elif encoder_from is not None:
        _check_source(encoder_from, config)


def check_evaluation(table: Table, config: FitConfig) -> None:
    """Raise before training for mistakes that would make the evaluation after it fail."""
    check_target_names(table.target_names)
    first = torch.tensor(table.y[table.rows("train")[:2]])
    distances_of(config.distance, first, first)


def suit_dataset(
    config: FitConfig, name: str | None, given: Collection[str] = (), *, uses_bins: bool = False
) -> FitConfig:
    """The config with the paper's options for one of its datasets: bins, label distance, flips.

    Args:
        config: the config of the run. Bins are set only if its head or methods use them.
        name: the name of the dataset; None for other data, which leaves the config unchanged.
        given: fields that the user chose, which are not changed.
        uses_bins: set bins even if this head and these methods do not use them.
    """
    if name is None:
        return config
    dataset = find_dataset(name)
    fields = {**dataset.fit, **(dataset.bins if uses_bins or config.uses_bins else {})}
    return replace(config, **{key: value for key, value in fields.items() if key not in given})


# -------------------------------------------------------------------------------- the run folder


def check_folder_state(out: Path, config: FitConfig, *, resume: bool, overwrite: bool) -> None:
    """Raise unless the folder may take this run."""
    if resume:
        if not RunFolder(out).exists:
            raise FileNotFoundError(
                f"{out} holds no run to continue. Leave out --resume to start one, or give the "
                "--out of one."
            )
        check_free(out)
        read_config(out, complete=True)
        _check_resumed(RunFolder(out), config)
        return
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        what = "may not be written to" if there.is_dir() else "is a file"
        raise OSError(f"{out} cannot be made: {there} {what}. Choose another --out.")
    check_free(out)
    if there != out or not contents(out):
        return
    if not RunFolder(out).exists:
        raise FileExistsError(
            f"{out} exists and holds no run. Choose a new folder for --out; nothing was changed."
        )
    if not overwrite:
        raise FileExistsError(
            f"{out} holds a run. Continue it with `rnc resume {out}`, add --overwrite to replace "
            "it, or choose another --out."
        )


def prepare_folder(out: Path, config: FitConfig, *, resume: bool, overwrite: bool) -> bool:
    """Prepare the folder for this run; returns whether config.json must be written.

    It must be if the run is new or continues to another number of epochs. Raises unless the folder
    may take this run. Only files of an old run are ever deleted.
    """
    check_folder_state(out, config, resume=resume, overwrite=overwrite)
    run = RunFolder(out)
    if not resume:
        if run.exists:
            run.delete()
        return True
    before, now = _resolved(run, run.fit), _resolved(run, config)
    if (before.epochs, before.head_epochs) == (now.epochs, now.head_epochs):
        return False
    if before.epochs != now.epochs:  # a head or fine-tuning that started from another encoder
        forget_later_stages(out)
    (out / SCORES_FILE).unlink(missing_ok=True)  # the run is not finished any more
    shutil.rmtree(out / ANALYSES_FOLDER, ignore_errors=True)  # they belong to the old model
    return True


def _check_resumed(run: RunFolder, config: FitConfig) -> None:
    """Raise unless a run can be resumed with this config."""
    # A field that an older version did not have counts as its default.
    before = run.fit.to_json()
    changed = {
        name: (before[name], value)
        for name, value in config.to_json().items()
        if before[name] != value and name not in (*SPEED_ONLY, *LENGTHS)
    }
    if changed:
        listed = "; ".join(
            f"{name}: {_words(then)} then, {_words(now)} now"
            for name, (then, now) in changed.items()
        )
        raise ValueError(
            f"{run.path} was started with other options ({listed}). Use the same ones to resume "
            "it, or another --out."
        )
    now = _resolved(run, config)
    records = run.records if (run.path / HISTORY_FILE).exists() else []
    for name, kinds in _STAGES.items():
        done = max((r.epoch for r in records if r.stage.endswith(kinds)), default=0)
        if (wanted := getattr(now, name)) < done:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{run.path} has trained {done} epochs, and {flag} asks for {wanted}. Give {done} "
                f"or more to go on; `rnc resume {run.path}` needs no other options."
            )


def _words(value: Any) -> str:
    return "not given" if value is None else repr(value)


def _resolved(run: RunFolder, config: FitConfig) -> FitConfig:
    kind, stored = run.config["model"]["kind"], run.config.get("resolved")
    resolved = config.resolve(run.sizes, kind)
    if stored is not None and all(getattr(config, n) == getattr(run.fit, n) for n in LENGTHS):
        return replace(resolved, **{name: stored[name] for name in LENGTHS})
    return resolved


# ---------------------------------------------------------------------------- another's encoder


def as_before(
    config: FitConfig, source: AnySource, out: Path, given: Collection[str]
) -> tuple[FitConfig, AnySource]:
    """Config and source as `inherit_encoder` made them when the run in `out` was started."""
    run = RunFolder(out)
    if not run.exists:
        return config, source
    names = {"encoder", "image_size", "augment_options"} - set(given)
    config = replace(config, **{name: getattr(run.fit, name) for name in names})
    kind = run.config["model"]["kind"]
    names = {"fit", "channels"} - set(given)
    if kind == "volume":
        names |= {"volume_size", "intensity"} - set(given)
    if kind in ("image", "volume"):
        taken = {name: getattr(run.source, name) for name in names}
        source = replace(cast(Any, source), **taken)
    return config, source


def inherit_encoder(
    config: FitConfig, source: AnySource, folder: Path, given: Collection[str] = ()
) -> tuple[FitConfig, AnySource]:
    """Config and source with the encoder of another run, and with images as that run reads them.

    Args:
        config: the config of the new run.
        source: how its data are read: any dataclass with the fields of a DataSource for images and
            volumes.
        folder: the run whose encoder is taken.
        given: fields that the user chose; one that does not fit raises.
    """
    content = read_config(folder, complete=True)
    theirs, fit = ModelConfig(**content["model"]), content.get("fit", {})
    if theirs.encoder == "own":
        raise ValueError(
            f"The encoder of {folder} is a module of the caller's own: from Python, give it as "
            "encoder= and its weights."
        )
    taken: dict[str, Any] = {"encoder": theirs.encoder}
    of_images: dict[str, Any] = {}
    if theirs.kind == "image":
        taken["image_size"] = fit.get("image_size", theirs.input_shape[-1])
        if "shape" not in theirs.preprocessing:  # older versions left out default values
            usual = {"fit": "crop", "channels": 3}
            of_images = {name: theirs.preprocessing.get(name, usual[name]) for name in usual}
    elif "intensity" in theirs.preprocessing:  # files of volumes
        of_images = {n: theirs.preprocessing[n] for n in ("fit", "channels", "intensity")}
        of_images["volume_size"] = theirs.preprocessing["side"]
    for name, value in (taken | of_images).items():
        own = getattr(config if name in taken else source, name)
        if name in given and own != value and (name, own) != ("encoder", "auto"):
            raise ValueError(
                f"--{name.replace('_', '-')} {own} does not go with --encoder-from {folder}, whose "
                f"encoder was trained with {value}. Leave it out."
            )
    if theirs.kind == "image":  # scale and normalise pixels as for that encoder
        pixels: dict[str, Any] = {name: tuple(theirs.augment[name]) for name in ("mean", "std")}
        usual = {"short_side": None, "interpolation": "bilinear"}
        for name, value in usual.items():
            if theirs.augment.get(name, value) != value:
                pixels[name] = theirs.augment[name]
        taken["augment_options"] = pixels | dict(config.augment_options or {})
    return replace(config, **taken), replace(cast(Any, source), **of_images)


def read_encoder(folder: Path, model: Regressor, config: FitConfig) -> dict[str, Tensor]:
    """The weights of the encoder of another run; raises if it does not fit."""
    _check_source(folder, config)
    theirs, ours = ModelConfig(**read_config(folder, complete=True)["model"]), model.config
    if theirs.projected:
        raise ValueError(
            f"{folder} has a frozen encoder with a projection, which another run does not take. "
            "Fit again with --freeze and the same --weights: their features are kept."
        )
    for what in ("kind", "encoder", "input_shape", "preprocessing"):
        a, b = getattr(theirs, what), getattr(ours, what)
        if what == "preprocessing":
            a, b = essential(a, theirs.kind), essential(b, ours.kind)
        if a != b:
            shown = "" if what == "preprocessing" else f": {a} there, {b} here"
            raise ValueError(
                f"The encoder of {folder} does not fit these data: another {what}{shown}. Use the "
                "same columns, --encoder and --image-size, or train an encoder."
            )
    finished = folder / MODEL_FILE
    weights, _ = read_tensors(finished) if finished.exists() else read_stage(folder / ENCODER_FILE)
    return without_head(weights)


def _check_source(folder: Path, config: FitConfig) -> None:
    """Raise unless a run has a trained encoder, and the scheme of the new run can use it."""
    if config.scheme not in ("probe", "finetune"):
        raise ValueError(
            "--encoder-from replaces the first stage of scheme probe or finetune, which trains the "
            f"encoder; got scheme {config.scheme}. Use --scheme probe or finetune."
        )
    if config.freeze:
        raise ValueError(
            f"--freeze and --encoder-from {folder} exclude each other: --freeze trains a new "
            "projection, --encoder-from reuses a trained encoder. Use --freeze --weights "
            f"{folder}, or leave out --freeze."
        )
    read_config(folder)
    if not (folder / MODEL_FILE).exists() and not (folder / ENCODER_FILE).exists():
        raise FileNotFoundError(
            f"{folder} has no trained encoder yet. Finish that run first: `rnc resume {folder}`."
        )


def same_source(run: RunFolder, encoder_from: Path | None) -> Path | None:
    """The run that a resumed run took its encoder from; raises if another one is given now."""
    before = run.config.get("encoder_from")
    if encoder_from is not None and before != str(encoder_from):
        raise ValueError(
            f"{run.path} was started with {'its own encoder' if before is None else before} and "
            f"not with --encoder-from {encoder_from}. Leave that out to resume it, or use another "
            "--out."
        )
    return None if before is None else Path(before)
