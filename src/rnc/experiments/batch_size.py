"""A study of batch sizes: how much small batches lose, and whether a queue or caching helps.

The paper has no such table. All lines see about the same number of samples, so smaller batches make
more updates. The learning rate is proportional to the square root of the batch size.
"""

import math
from typing import Any

from rnc.config import FitConfig
from rnc.experiments import scores
from rnc.experiments.plan import Line, Plan, Setting
from rnc.run.folder import DoesNotApply

SMALLEST, LARGEST = 8, 512
ALONE, QUEUED, CACHED = "RnC", "RnC, queue", "RnC, gradient caching"
SMALL_BATCH_FIELDS = ("queue", "chunk")


def batch_size(setting: Setting) -> Plan:
    """RnC by the number of samples in memory: alone, with a queue, with gradient caching."""
    table = setting.data.table
    rows = table.sizes.encoder
    sizes = batch_sizes(rows)
    if len(sizes) < 2:
        raise DoesNotApply(
            f"batch-size compares at least two batch sizes ({SMALLEST}, {2 * SMALLEST}, ...), with "
            f"two batches per epoch each. It needs {4 * SMALLEST} training rows; "
            f"{setting.data.name} has {rows}."
        )
    if given := [name for name in SMALL_BATCH_FIELDS if name in setting.given]:
        raise ValueError(
            f"The lines of batch-size differ in {', '.join(f'--{name}' for name in given)}: leave "
            "that out."
        )
    base, most = setting.base.resolve(rows, table.kind), sizes[-1]
    fields: dict[str, dict[int, dict[str, Any]]] = {
        ALONE: {size: schedule(base, rows, size) for size in sizes},
        QUEUED: {size: schedule(base, rows, size) | {"queue": most - size} for size in sizes[:-1]},
        CACHED: {size: schedule(base, rows, most) | {"chunk": size} for size in sizes[:-1]},
    }
    columns = {
        **scores.errors_and_r2(setting.base.label_distance),
        "Spearman": scores.spearman,
        scores.UPDATES: scores.updates,
        scores.SECONDS: scores.seconds,
    }
    lines = [
        Line(method, in_memory(size), setting.rnc(**changes), columns)
        for method, by_size in fields.items()
        for size, changes in by_size.items()
    ]
    return Plan(
        "Small batches",
        f"{ALONE}: batches of the size in memory. {QUEUED}: the same batches, plus a queue of "
        f"earlier samples that fills them up to {most}. {CACHED}: batches of {most}, encoded in "
        "parts of the size in memory. All lines see the same number of samples, up to rounding of "
        "the epochs, so small batches make more updates. The learning rate is "
        f"{base.rate(contrast=True):g} for batches of {base.batch_size} and grows with the square "
        "root of the batch size.",
        lines,
        picture="batches",
    )


def batch_sizes(rows: int) -> list[int]:
    """The powers of two from 8 to 512 that give at least two batches per epoch.

    >>> batch_sizes(12_208), batch_sizes(100), batch_sizes(20)
    ([8, 16, 32, 64, 128, 256, 512], [8, 16, 32], [8])
    """
    powers = [2**k for k in range(int(math.log2(SMALLEST)), int(math.log2(LARGEST)) + 1)]
    return [power for power in powers if 2 * power <= rows]


def schedule(base: FitConfig, rows: int, size: int) -> dict[str, Any]:
    """A batch size, with the rate and the epochs that see about as many samples as `base`.

    An epoch leaves out samples that do not fill a batch. More epochs make up for them.

    >>> base = FitConfig(batch_size=64, epochs=12, lr=0.002)
    >>> schedule(base, 1257, 64), schedule(base, 1257, 512)["epochs"]
    ({'batch_size': 64, 'epochs': 12, 'lr': 0.002}, 15)
    """
    assert base.batch_size is not None
    assert base.epochs is not None
    used = rows // size * size
    rate = base.rate(contrast=True) * math.sqrt(size / base.batch_size)
    return {"batch_size": size, "epochs": max(1, round(base.epochs * rows / used)), "lr": rate}


def in_memory(size: int) -> str:
    """The text in the column "setting" of a line."""
    return f"{size} in memory"
