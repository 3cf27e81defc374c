"""Survey image files by their headers, before any is decoded."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from rnc.data.images import readable_formats, reader_threads
from rnc.data.packed import opened_picture

_SURVEYED = 1000  # headers that are read as a sample of all
_NOTABLE = 0.1  # a cut of less than this share of the area, or of the files, needs no note


class Survey(NamedTuple):
    """The result of a survey. Files that cannot be read do not count."""

    grey: bool = False
    """Whether every file is grey."""
    clipped: float = 0.0
    """Share of the files that lose more than a tenth of their area by fit "crop"."""
    lost: float = 0.0
    """Share of their area that these lose, on average."""

    def note(self) -> str | None:
        """A note for the user if fit "crop" cuts off much of these files; else None."""
        if self.clipped < _NOTABLE:
            return None
        return (
            f"{self.clipped:.0%} of the images are not square: --fit crop keeps the middle square "
            f"and cuts off {self.lost:.0%} of their area, on average. --fit pad or --fit stretch "
            "keeps all of it."
        )


def survey(files: Sequence[str | Path]) -> Survey:
    """Survey up to 1,000 files. The others are read only while all files so far are grey."""
    chosen = np.unique(np.linspace(0, len(files) - 1, _SURVEYED).astype(int))
    rest = np.setdiff1d(np.arange(len(files)), chosen)
    with warnings.catch_warnings(), ThreadPoolExecutor(reader_threads()) as pool:
        warnings.simplefilter("ignore")  # decoding will report what is wrong
        headers = [found for found in pool.map(_header, (files[i] for i in chosen)) if found]
        grey = bool(headers) and all(map(_is_grey, headers))
        for start in range(0, len(rest) if grey else 0, _SURVEYED):
            found = pool.map(_header, (files[i] for i in rest[start : start + _SURVEYED]))
            grey = all(header is None or _is_grey(header) for header in found)
            if not grey:
                break
    cuts = np.array([1 - min(header.size) / max(header.size) for header in headers])
    clipped = cuts > _NOTABLE
    if not clipped.any():
        return Survey(grey)
    return Survey(grey, float(clipped.mean()), float(cuts[clipped].mean()))


class _Header(NamedTuple):
    mode: str
    size: tuple[int, int]


def _header(file: str | Path) -> _Header | None:
    try:
        with Image.open(opened_picture(file), formats=readable_formats()) as image:
            return _Header(image.mode, image.size)
    except Exception:  # Pillow raises many types of errors for broken files
        return None


def _is_grey(header: _Header) -> bool:
    return header.mode in ("1", "L", "LA", "La", "F") or header.mode.startswith("I")
