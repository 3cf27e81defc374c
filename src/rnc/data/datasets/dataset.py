"""What a dataset is: its facts, how to read a copy, how to check one.

A dataset is one file beside this one, with a function for each of the two, and its facts:

    read(root, *, ...) -> Table               the copy in a folder, ready for a network
    _findings(root, progress) -> Iterator     what was found there, and what differs from the
                                              published figures
    a `Dataset`                               title, access, published figures, the two functions

`rnc.data.datasets.reading` and `rnc.data.datasets.findings` hold what the readers share.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rnc.data.datasets.findings import Finding
from rnc.data.errors import DataError
from rnc.data.table import Table


@dataclass(frozen=True)
class Dataset:
    """What is known about a dataset before a file of it is opened."""

    name: str
    title: str
    what: str
    """The inputs and the target."""
    access: str
    """Where it comes from, and on what terms."""
    counts: Mapping[str, int]
    """Published numbers of rows, by what they count."""
    ranges: Mapping[str, tuple[float, float]]
    """Published lowest and highest value of each target."""
    read: Callable[..., Table]
    findings: Callable[[Path, bool], Iterator[Finding]]
    """Folder of a copy, and whether to show a bar -> findings; a broken copy may raise."""
    extra: str | None = None
    """The extra of this package that reading needs."""
    options: tuple[str, ...] = field(init=False)
    """Names of the options of `read`."""

    def __post_init__(self) -> None:
        names = tuple(inspect.signature(self.read).parameters)[1:]
        object.__setattr__(self, "options", names)

    def check(self, root: Path, progress: bool = False) -> Iterator[Finding]:
        """Compare a copy with the published set; what ends the check early is its last finding."""
        try:
            yield from self.findings(root, progress)
        except (DataError, ImportError) as error:
            yield Finding("error", str(error))
