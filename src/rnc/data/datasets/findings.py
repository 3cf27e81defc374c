"""What a check of a copy finds, and the comparisons that readers share."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rnc.data.errors import first_few
from rnc.data.image_cache import load_images
from rnc.data.splits import SPLITS

Level = Literal["ok", "warning", "error"]

_CHECK_SIDE = 8  # a check decodes each image to its end, but keeps little of it


@dataclass(frozen=True)
class Finding:
    """One result of a check: ok, unlike the published set (warning), or unusable (error)."""

    level: Level
    text: str


def count_finding(what: str, found: int, published: int) -> Finding:
    """Whether a number is the published one.

    >>> count_finding("test images", 2140, 2140).text
    '2,140 test images, as published.'
    >>> count_finding("test images", 12, 2140)
    Finding(level='warning', text='12 test images; published: 2,140.')
    """
    if found == published:
        return Finding("ok", f"{found:,} {what}, as published.")
    return Finding("warning", f"{found:,} {what}; published: {published:,}.")


def split_findings(split: Any, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Whether train, val and test have as many images as published."""
    for part in SPLITS:
        yield count_finding(f"{part} images", int((split == part).sum()), counts[part])


def range_finding(
    what: str, values: NDArray[np.float64], published: tuple[float, float], unit: str = ""
) -> Finding:
    """Whether all values lie in the published range.

    >>> range_finding("age", np.array([3.0, 186.0]), (0, 101))
    Finding(level='warning', text='age is 3 to 186; published: 0 to 101. 1 of 2 rows lie outside.')
    """
    low, high = published
    outside = int(((values < low) | (values > high)).sum())
    here = f"{what} is {values.min():.5g} to {values.max():.5g}{unit}"
    if not outside:
        return Finding("ok", f"{here}, within the published {low:g} to {high:g}.")
    return Finding(
        "warning",
        f"{here}; published: {low:g} to {high:g}. {outside:,} of {len(values):,} rows lie outside.",
    )


def image_findings(folder: Path, paths: Iterable[str], progress: bool) -> Iterator[Finding]:
    """Whether every image is there and can be read to its end."""
    names = list(paths)
    _, bad = load_images([folder / name for name in names], _CHECK_SIDE, progress=progress)
    missing = [names[i] for i, reason in bad.items() if reason == "no such file"]
    broken = [f"{names[i]} ({why})" for i, why in bad.items() if why != "no such file"]
    if missing:
        yield Finding(
            "error",
            f"{len(missing):,} of {len(names):,} images are missing below {folder}: "
            f"{first_few(missing, 3)}. Unpack the archive again, or download it again if that is "
            "no help; skip_bad=True reads the rest.",
        )
    if broken:
        yield Finding(
            "error",
            f"{len(broken):,} of {len(names):,} images are broken: {first_few(broken, 3)}. "
            "Download them again; skip_bad=True reads the rest.",
        )
    if not bad:
        yield Finding("ok", f"All {len(names):,} images can be read.")
