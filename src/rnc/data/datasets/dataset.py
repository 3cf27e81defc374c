"""The description of a dataset: its facts, how to read a copy, and how to check one.

Each dataset has a file beside this one with two functions and its facts:

    read(root, *, ...) -> Table               the copy in a folder, ready for a network
    _findings(root, progress) -> Iterator     what was found there, and what differs from the
                                              published figures
    a `Dataset`                               title, access, published figures, the two functions

Here are also the comparisons that the checks share; `rnc.data.datasets.reading` holds what the
readers share.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rnc.data.errors import DataError, first_few
from rnc.data.image_cache import load_images
from rnc.data.table import Table

Level = Literal["ok", "warning", "error"]

_SKIP = "--skip-bad (skip_bad=True) reads the rest"
_CHECK_SIDE = 8  # a check decodes each image to its end, but keeps little of it


@dataclass(frozen=True)
class Finding:
    """One result of a check: ok, different from the published set (warning), unusable (error)."""

    level: Level
    text: str


@dataclass(frozen=True)
class Dataset:
    """The facts about a dataset, and the functions that read and check a copy."""

    name: str
    title: str
    what: str
    """The inputs and the target."""
    access: str
    """Where it comes from, and on what terms."""
    counts: Mapping[str, int]
    """Published counts, such as {"images": 16_488}."""
    ranges: Mapping[str, tuple[float, float]]
    """Published lowest and highest value of each target."""
    read: Callable[..., Table]
    findings: Callable[[Path, bool], Iterator[Finding]]
    """Checks a copy, given its folder and whether to show a bar. It may raise for a broken copy."""
    extra: str | None = None
    """The extra of this package that reading needs."""
    fit: Mapping[str, Any] = field(default_factory=dict)
    """Fields of FitConfig that the paper sets for these data."""
    bins: Mapping[str, Any] = field(default_factory=dict)
    """The paper's low, high and step, for heads and methods that use bins."""
    options: tuple[str, ...] = field(init=False)
    """Names of the options of `read`."""

    def __post_init__(self) -> None:
        names = tuple(inspect.signature(self.read).parameters)[1:]
        object.__setattr__(self, "options", names)

    def check(self, root: Path, progress: bool = False) -> Iterator[Finding]:
        """Compare a copy with the published set. An error ends the check as its last finding."""
        try:
            yield from self.findings(root, progress)
        except (DataError, ImportError) as error:
            yield Finding("error", str(error))


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
    """Whether every image exists and can be read to its end."""
    names = list(paths)
    _, bad, _ = load_images([folder / name for name in names], _CHECK_SIDE, progress=progress)
    missing = [names[i] for i, reason in bad.items() if reason == "no such file"]
    broken = [f"{names[i]} ({why})" for i, why in bad.items() if why != "no such file"]
    again = "Unpack the archive again, or download it again if that is no help"
    for cases, problem, advice in (
        (missing, f"missing below {folder}", again),
        (broken, "broken", "Download them again"),
    ):
        if cases:
            text = f"{len(cases):,} of {len(names):,} images are {problem}: {first_few(cases, 3)}."
            yield Finding("error", f"{text} {advice}; {_SKIP}.")
    if not bad:
        yield Finding("ok", f"All {len(names):,} images can be read.")
