"""Batch size and epochs that follow from the number of training rows.

The paper's recipe is for 12,208 images: batches of 256. Fewer rows get smaller batches, so that an
epoch still has some dozens of updates. benchmarks/defaults.py measures what that is worth.
"""

import math
from typing import NamedTuple

SMALLEST_BATCH, LARGEST_BATCH = 16, 256
BATCHES_PER_EPOCH = 32
LEAST_UPDATES = 1000
"""Updates that preset quick makes at least, if the batch size is ours to choose."""
QUICK_EPOCHS = 30
BEST_EPOCHS = 200
"""Of two views; four views halve them."""
MANY_IMAGES = 5000
"""Images from which preset best shows RnC four views of half as many samples in a step. Measured
for 12,208 of them; for a few thousand it is not known."""
MANY_TABLE_ROWS = 10_000
"""Below this, preset best shows RnC one view of each row of a table, and so twice as many rows in
a step. Measured in docs/choosing.md."""
BEST_UPDATES = 2000
"""Updates that preset best makes at least on images and signals."""
FROZEN_EPOCHS, FROZEN_UPDATES = 30, 1000
"""Epochs and updates at least of a projection on frozen features."""
TABLE_EPOCHS, TABLE_UPDATES = 40, 4000
"""Epochs of two views, and updates, that preset best makes at least on tables."""


class Sizes(NamedTuple):
    """How many rows there are to train on. Both are equal where all targets are exact."""

    labelled: int
    """By the loss of a head: rows with exact targets."""
    encoder: int
    """By an objective that takes rows whose targets are missing or known in part, too."""
    ranged: int = 0
    """Of these, rows with an interval or a censored target, which may train a head, too."""

    @classmethod
    def of(cls, rows: "Sizes | int") -> "Sizes":
        """The same; a number is that of rows whose targets are all exact."""
        return cls(rows, rows) if isinstance(rows, int) else rows


def labelled_batch_size(batch_size: int, sizes: Sizes) -> int:
    """Samples per step of a head's loss: not above a quarter of the rows that have targets.

    Where all rows have some, it is the batch size.

    >>> labelled_batch_size(256, Sizes(250, 12_208)), labelled_batch_size(256, Sizes(250, 250))
    (32, 256)
    """
    if sizes.labelled == sizes.encoder:
        return batch_size
    return min(batch_size, best_batch_size(sizes.labelled))


def default_batch_size(rows: int) -> int:
    """The power of two below a 32nd of the rows, from 16 to 256, and never above the rows.

    >>> [default_batch_size(rows) for rows in (7, 200, 1053, 8192, 12_208, 1_000_000)]
    [7, 16, 32, 256, 256, 256]
    """
    return _power_of_two(rows // BATCHES_PER_EPOCH, SMALLEST_BATCH, rows)


def quick_epochs(rows: int) -> int:
    """Epochs of preset quick: 30, or as many as it takes to make 1,000 updates.

    >>> [quick_epochs(rows) for rows in (7, 200, 1053, 12_208)]
    [1000, 84, 32, 30]
    """
    steps = max(1, rows // default_batch_size(rows))
    return max(QUICK_EPOCHS, math.ceil(LEAST_UPDATES / steps))


def sgd_scale(batch_size: int | None) -> float:
    """What a rate for batches of 256 is multiplied by: a square root.

    Without it, a head's loss by SGD diverges on batches of 16.

    >>> sgd_scale(None), sgd_scale(256), sgd_scale(16), sgd_scale(1024)
    (1.0, 1.0, 0.25, 1.0)
    """
    return 1.0 if batch_size is None else min(1.0, math.sqrt(batch_size / LARGEST_BATCH))


def best_batch_size(rows: int | None, views: int = 2) -> int:
    """Samples per step of preset best: 256 as in the paper, or about a quarter of the rows.

    More than two views are of fewer samples, so that a step has as many images.

    >>> [best_batch_size(rows) for rows in (None, 7, 200, 610, 1860, 12_208)]
    [256, 7, 32, 128, 256, 256]
    >>> best_batch_size(12_208, views=4)
    128
    """
    size = LARGEST_BATCH if rows is None else _power_of_two(rows // 4, 32, rows)
    return max(1, 2 * size // max(2, views))


def best_epochs(rows: int | None, batch_size: int, views: int = 2) -> int:
    """Epochs of preset best: 200 of two views, or as many as it takes to make 2,000 updates.

    >>> [best_epochs(rows, best_batch_size(rows)) for rows in (None, 200, 1860, 12_208)]
    [200, 334, 286, 200]
    >>> best_epochs(12_208, batch_size=128, views=4)
    100
    """
    steps = BEST_UPDATES if rows is None else max(1, rows // batch_size)
    return max(2 * BEST_EPOCHS // max(2, views), math.ceil(BEST_UPDATES / steps))


def best_table_batch_size(rows: int, views: int = 1) -> int:
    """Rows per step of preset best for tables: twice the default in one view, or as many views.

    >>> [best_table_batch_size(rows) for rows in (7, 200, 1053)]
    [7, 32, 64]
    >>> best_table_batch_size(14_304, views=2)
    256
    """
    return max(1, min(rows, 2 * default_batch_size(rows) // max(1, views)))


def best_table_epochs(rows: int | None, batch_size: int, views: int = 1) -> int:
    """Epochs of preset best for tables: 80 of one view, or as many as it takes for 4,000 updates.

    >>> [best_table_epochs(rows, best_table_batch_size(rows)) for rows in (218, 1053)]
    [667, 250]
    >>> [best_table_epochs(rows, 256, views=2) for rows in (14_304, 50_000)]
    [73, 40]
    """
    steps = TABLE_UPDATES if rows is None else max(1, rows // max(1, batch_size))
    return max(2 * TABLE_EPOCHS // max(1, views), math.ceil(TABLE_UPDATES / steps))


def _power_of_two(wanted: int, least: int, rows: int) -> int:
    """The power of two at or below `wanted`, from `least` to 256, and never above the rows."""
    power = 1 << (max(1, wanted).bit_length() - 1)
    return max(1, min(rows, max(least, min(LARGEST_BATCH, power))))


def frozen_epochs(rows: int | None, batch_size: int) -> int:
    """Epochs on frozen features: 30, or as many as it takes to make 1,000 updates.

    >>> [frozen_epochs(rows, 128) for rows in (None, 500, 12_208)]
    [30, 334, 30]
    """
    steps = max(1, (rows or LEAST_UPDATES * batch_size) // batch_size)
    return max(FROZEN_EPOCHS, math.ceil(FROZEN_UPDATES / steps))
