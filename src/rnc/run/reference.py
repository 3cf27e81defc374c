"""Which training samples a run keeps to compare others with, and their features.

At most 20,000 of them, and at most 64 MiB of features. They are drawn uniformly, by a generator
of its own: how near training samples are to each other, and how they are spread over the targets,
is then as in all of them, and the random numbers of the training stay as they are.
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

    Samples without a known target, and those without finite features, of a training that diverged,
    are left out.
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
