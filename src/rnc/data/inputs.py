"""Inputs of a model: columns, signals, volumes and pixels, from arrays and from files."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rnc.data import sources
from rnc.data.columns import nested
from rnc.data.errors import DataError, first_few, unusable
from rnc.data.features import apply_features
from rnc.data.formats import suffix_of
from rnc.data.image_cache import Decoded, Decoding, load_images
from rnc.data.images import image_files
from rnc.data.packed import member_of
from rnc.data.pictures import pixels_of, whole_pixels
from rnc.data.splits import PARTIAL, PARTIAL_TEST
from rnc.data.stamps import copies, digests_of
from rnc.data.survey import survey
from rnc.data.volumes import (
    form_of,
    load_scans,
    scans_below,
    survey_scans,
    units_note,
    volumes_of,
    whole_volume,
)


class Skipped(NamedTuple):
    """A row that was left out."""

    name: str
    reason: str


class Inputs(NamedTuple):
    """Rows for a model, without targets."""

    x: NDArray[Any]
    """As in a Table: (n, p), (n, c, l), (n, c, h, w) or (n, c, d, h, w)."""
    names: NDArray[np.str_]
    """An identifier of each row: its file name or number."""
    skipped: tuple[Skipped, ...] = ()
    """Images that could not be used."""
    columns: pd.DataFrame = pd.DataFrame()
    """Columns of a table that the model does not use, such as ids; n rows, or no columns."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the rows, such as categories that training has not seen."""


def inputs_from_arrays(
    x: NDArray[Any] | pd.DataFrame,
    preprocessing: dict[str, Any],
    kind: str,
    *,
    feature_names: Sequence[Any] | NDArray[Any] | None = None,
    place: str = "x",
) -> Inputs:
    """New arrays as inputs, prepared as the train rows of a Table were.

    Args:
        x: (n, p), (n, c, l), (n, c, h, w) or (n, c, d, h, w), or a DataFrame.
        preprocessing: that of the Table.
        kind: that of the Table.
        feature_names: names of the p columns; by default those of the Table, in its order.
        place: the file, for messages.
    """
    prepared = prepared_arrays(x, preprocessing, kind, feature_names=feature_names, place=place)
    return Inputs(prepared, np.arange(len(prepared)).astype(str))


def prepared_arrays(
    x: NDArray[Any] | pd.DataFrame,
    preprocessing: dict[str, Any],
    kind: str,
    *,
    feature_names: Sequence[Any] | NDArray[Any] | None = None,
    place: str = "x",
) -> NDArray[Any]:
    """The x of `inputs_from_arrays`, without names of rows, which can take much memory."""
    is_frame = isinstance(x, pd.DataFrame)
    x = x if is_frame else np.asarray(x)
    shape, trained = x.shape, f"{place}: the model was trained on"
    if kind != ("table" if is_frame else sources.kind_of(x, place)):
        raise DataError(f"{trained} data of kind {kind!r}; x is {shape}.")
    if kind == "table":
        known = [column["name"] for column in preprocessing["columns"]]
        if not is_frame and feature_names is None and len(known) != shape[1]:
            named = f"{len(known)} columns ({first_few(known, 30)})"
            raise DataError(f"{trained} {named}; x is {shape}. A row needs all of them, in order.")
        x = sources.as_columns(x, known if feature_names is None else feature_names, place)
        return apply_features(x, preprocessing, place)
    if kind == "image":
        return pixels_of(x, preprocessing, 0, place)
    if kind == "volume":
        return volumes_of(x, preprocessing, place)
    channels = preprocessing.get("channels", 3)
    if shape[1] != channels:
        raise DataError(f"{trained} {channels} channels; x has {shape[1]}: {shape}.")
    return sources.as_signals(x, place)


def essential(preprocessing: dict[str, Any], kind: str) -> dict[str, Any]:
    """The entries that two preprocessings must share, for tables to be the same.

    Entries that the shape of x tells, default values, and the left-out columns do not count.

    >>> essential({"channels": 3, "fit": "crop", "side": 256}, "image")
    {}
    """
    if kind != "image":
        return {name: value for name, value in preprocessing.items() if name != "left_out"}
    usual = {"channels": 3, "fit": "crop", "resample": "bicubic"}
    return {
        name: value
        for name, value in preprocessing.items()
        if name not in ("side", "shape") and usual.get(name) != value
    }


def _shown(file: str) -> str:
    """The name of a file for people, or of a picture inside a larger file."""
    return file if (member := member_of(file)) is None else member.shown


def _choice_note(frame: pd.DataFrame, chosen: str, taken: Sequence[str]) -> tuple[str, ...]:
    """A note about other columns with file names; () if there are none."""
    others = [repr(name) for name in sources.columns_of_files(frame, taken) if name != chosen]
    if not others:
        return ()
    return (
        f"File names are read from column {chosen!r}. Other columns with file names: "
        f"{', '.join(others)}. Choose one with --image-column (image_column=).",
    )


@dataclass(frozen=True)
class ImageRows:
    """Rows that name a file each: an image or a volume."""

    place: str
    """The table, folder or file that names them, for messages."""
    names: list[str]
    files: Sequence[str | Path]
    rows: list[int] | None
    """Row numbers in a table; None if there is no table."""
    identity: str
    """A text that identifies the set of files. Different sets need different caches."""
    kind: Literal["image", "volume"] = "image"
    notes: tuple[str, ...] = ()
    """Notes for the user about how the files were chosen."""

    @classmethod
    def of(
        cls, frame: pd.DataFrame, name: str, taken: Sequence[str], folder: Path, place: str
    ) -> "ImageRows":
        """The rows of a table with file names, which are relative to `folder`."""
        if not folder.is_dir():
            raise DataError(
                f"The image folder {folder} does not exist. Give the folder that the file names in "
                f"{place} are relative to with --images (images=)."
            )
        values = frame[sources.image_column(frame, name, taken, place)]
        if (cells := nested(values)) is not None:
            raise DataError(
                f"{place}: column {values.name!r} holds {cells}; expected the name of an image "
                "file in each row."
            )
        names = ["" if pd.isna(value) else str(value).strip() for value in values]
        identity = f"{Path(place).resolve()}\n{folder.resolve()}\n{values.name}"
        files = [os.path.join(folder, name) for name in names]  # noqa: PTH118  # a fifth of a Path
        kind = _kind_of(names)
        shown = [_shown(name) for name in names]
        notes = _choice_note(frame, values.name, taken) if name == "auto" else ()
        return cls(place, shown, files, frame.index.tolist(), identity, kind, notes)

    @classmethod
    def listed(
        cls,
        paths: Sequence[Path],
        *,
        relative: bool = True,
        kind: Literal["image", "volume"] = "image",
    ) -> "ImageRows":
        """The given files, and all images or volumes in the given folders.

        With `relative`, the files of a single folder are named relative to it.
        """
        below = image_files if kind == "image" else scans_below
        names, files = [], []
        for path in paths:
            inside = below(path) if path.is_dir() else [path]
            files += inside
            alone = relative and len(paths) == 1 and path.is_dir()
            names += [(file.relative_to(path) if alone else file).as_posix() for file in inside]
        if not files:
            raise DataError(f"There are no {kind}s to read: the list of files is empty.")
        place = str(paths[0]) if len(paths) == 1 else f"{paths[0]}, ..."
        identity = "\n".join(str(path.resolve()) for path in paths)
        return cls(place, names, files, None, identity, kind)

    @property
    def thing(self) -> str:
        """The word for one of the files in messages."""
        return "picture" if self.kind == "image" else "scan"

    def __getitem__(self, chosen: NDArray[np.bool_]) -> "ImageRows":
        """The chosen rows."""
        return self.at(np.flatnonzero(chosen))

    def at(self, positions: Iterable[int]) -> "ImageRows":
        """The rows at these positions."""
        kept = list(positions)
        return replace(
            self,
            names=[self.names[i] for i in kept],
            files=[self.files[i] for i in kept],
            rows=None if self.rows is None else [self.rows[i] for i in kept],
        )

    def survey(self, decoding: Decoding) -> tuple[Decoding, tuple[str, ...]]:
        """How to decode the files, after a look at some of them, and notes for the user."""
        if self.kind == "volume":
            channels, notes = survey_scans(self.files, decoding.fit)
            return decoding._replace(channels=decoding.channels or channels), self.notes + notes
        found = survey(self.files)
        note = found.note() if decoding.fit == "crop" else None
        if decoding.channels is None:
            decoding = decoding._replace(channels=1 if found.grey else 3)
        return decoding, self.notes if note is None else (*self.notes, note)

    def preprocessing(self, decoding: Decoding) -> dict[str, Any]:
        """The preprocessing that decodes new files in the same way, as JSON types."""
        if self.kind == "image":
            return decoding.preprocessing
        own = {"side": decoding.volume_size, "intensity": decoding.intensity}
        return {"channels": decoding.channels, "fit": decoding.fit} | own

    def load(self, decoding: Decoding, preprocessing: Mapping[str, Any] | None = None) -> Decoded:
        """The pixels of the readable images. Others raise unless `decoding.skip_bad`.

        `preprocessing` is that of a fitted model. If the model was trained on arrays, files must
        have their size, since it is unknown how the arrays were made.
        """
        found = self.decoded(decoding, preprocessing)
        return found._replace(bad=self.usable(found.bad, decoding.skip_bad))

    def decoded(
        self, decoding: Decoding, preprocessing: Mapping[str, Any] | None = None
    ) -> Decoded:
        """The result of `load`, without an error for unreadable images."""
        self._check_kind(preprocessing)
        if self.kind == "volume":
            return self._scans(decoding, preprocessing)
        if preprocessing is not None and "shape" in preprocessing:
            return self._load_whole(preprocessing)
        if preprocessing is not None:
            decoding = decoding.as_fitted(preprocessing)
        side, _, cache, progress, fit, channels, resample, *_ = decoding
        assert channels is not None
        key = f"{channels}" + ("" if fit == "crop" else f"\n{fit}")
        key += "" if resample == "bicubic" else f"\n{resample}"
        return load_images(
            self.files,
            side,
            channels=channels,
            fit=fit,
            cache=self._entry(cache, side, key),
            progress=progress,
            resample=resample,
        )

    def _check_kind(self, preprocessing: Mapping[str, Any] | None) -> None:
        """Raise if these are scans and a fitted model takes images, or the other way round."""
        fitted = preprocessing or {}
        of_volumes = "intensity" in fitted or len(fitted.get("shape", ())) == 3
        if fitted and of_volumes != (self.kind == "volume"):
            trained = "volumes" if of_volumes else "images"
            raise DataError(
                f"The model was trained on {trained}; {self.place} names {self.kind}s, such as "
                f"{self.names[0]}."
            )

    def _scans(self, decoding: Decoding, preprocessing: Mapping[str, Any] | None) -> Decoded:
        if preprocessing is not None and "shape" in preprocessing:
            return self._load_whole(preprocessing)
        form = form_of(self.preprocessing(decoding) if preprocessing is None else preprocessing)
        key = "\n".join(map(str, form))
        entry = self._entry(decoding.cache, form.side, key)
        return load_scans(self.files, form, cache=entry, progress=decoding.progress)

    def _entry(self, cache: str | Path | None, side: int, key: str) -> Path | None:
        """The path of the cache of these files. `key` identifies the form of the pixels."""
        if cache is None:
            return None
        token = blake2b(f"{self.identity}\n{key}".encode(), digest_size=8).hexdigest()
        return Path(cache) / f"{Path(self.place).stem[:40]}-{side}-{token}"

    def _load_whole(self, preprocessing: Mapping[str, Any]) -> Decoded:
        good, bad = [], {}
        read = whole_pixels if self.kind == "image" else whole_volume
        for i, file in enumerate(self.files):
            try:
                good.append(read(file, preprocessing))
            except (OSError, ValueError) as error:
                bad[i] = str(error)
        shape = (0, preprocessing.get("channels", 3), *preprocessing["shape"])
        nothing = np.empty(shape, np.uint8 if self.kind == "image" else np.float32)
        return Decoded(np.stack(good) if good else nothing, bad)

    def usable(self, bad: dict[int, str], skip_bad: bool) -> dict[int, str]:
        """The problems of bad images, by position. Raises unless they may be skipped."""
        bad = bad | {i: "no file name" for i in bad if not self.names[i]}
        if not bad or (skip_bad and len(bad) < len(self.files)):
            return bad
        advice = "No usable rows remain."
        if len(bad) < len(self.files):
            advice = "Repair them, or leave them out with --skip-bad (skip_bad=True)."
        elif self.rows is not None:
            advice += " --images (images=) must be the folder that the file names are relative to."
        reasons = [f"{_shown(str(self.files[i]))}: {reason}" for i, reason in bad.items()]
        if self.rows is not None:
            places = [f"row {self.rows[i]}: " for i in bad]
            reasons = [place + reason for place, reason in zip(places, reasons, strict=True)]
        raise unusable(self.place, f"{self.kind}s", reasons, len(self.files), advice)

    def copies_across(
        self, split: NDArray[np.str_], bad: Mapping[int, str], digests: Sequence[str] | None
    ) -> tuple[str, ...]:
        """A note about pictures that are in more than one split; () if there are none.

        `digests` are hashes of the files; with None they are computed.
        """
        found = list(digests_of(self.files) if digests is None else digests)
        for i in bad:
            found[i] = ""
        split = np.where(split == PARTIAL, "train", split)  # both train
        split = np.where(split == PARTIAL_TEST, "test", split)
        across = [rows for rows in copies(found) if len(set(split[rows])) > 1]
        if not across:
            return ()
        first = {str(split[i]): f"{self.names[i]} ({split[i]})" for i in reversed(across[0])}
        return (
            f"{len(across)} {self.thing}s in {sum(map(len, across))} rows are in more than one of "
            f"train, val and test, such as {' and '.join(sorted(first.values()))}: the same file, "
            "or one with the same content. Scores on them are too good. Give the rows of a "
            f"{self.thing} a common value of --group-column (group_column=), or leave out the "
            "copies.",
        )

    def units_note(self, x: NDArray[Any], decoding: Decoding) -> tuple[str, ...]:
        """A note about scans whose units seem to differ; () if not, or if scans are scaled."""
        return units_note(x) if self.kind == "volume" and decoding.intensity == "keep" else ()

    def skipped(self, bad: dict[int, str]) -> tuple[Skipped, ...]:
        """The bad images as skipped rows, by name."""
        return tuple(Skipped(self.names[i], reason) for i, reason in bad.items())


def _kind_of(names: Sequence[str]) -> Literal["image", "volume"]:
    """The kind of the files: volume if the first one has a suffix of volumes, else image."""
    first = next(filter(None, names), "")
    return "volume" if suffix_of(Path(first)) in sources.VOLUME_SUFFIXES else "image"
