"""The training samples that a run keeps to compare new samples with, and their features.

There are at most 20,000, and at most 64 MiB of features. They are drawn uniformly, so that they are
spread over the targets like all training samples. The draw has its own generator, so that it does
not change the random numbers of the training.
"""

import numpy as np

from rnc.data.table import Table
from rnc.intervals.reference import Reference, make_reference
from rnc.model import Regressor
from rnc.run.evaluate import draw

MOST_SAMPLES = 20_000
MOST_NUMBERS = 2**24  # of features: 64 MiB


def reference_of(model: Regressor, table: Table) -> Reference | None:
    """The reference of a model that was trained on a table; None if it has fewer than two samples.

    Samples are left out if a target is unknown, or if features are not finite because the training
    diverged.
    """
    rows = table.rows("train")
    rows = rows[np.isfinite(table.y[rows]).all(axis=1)]
    most = min(MOST_SAMPLES, MOST_NUMBERS // max(1, model.head.config.d))
    samples = rows[draw(len(rows), most)]
    if len(samples) == 0:
        return None
    features = model.steady().embed_prepared(table.x, rows=samples)
    finite = np.isfinite(features).all(axis=1)
    if finite.sum() < 2:
        return None
    kept = samples[finite]
    return make_reference(features[finite], table.y[kept], table.names[kept], kept, len(rows))
