"""One digest per table, by which experiments and searches recognise the same data again."""

import json
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rnc.data.table import Table

_SAMPLED = 64  # inputs that are hashed: all of them may be many gigabytes

_DIGESTS: WeakKeyDictionary[Table, str] = WeakKeyDictionary()


def table_digest(table: Table) -> str:
    """A hash of a table: all targets, names, splits and subgroups, and 64 of the inputs.

    It names run folders and studies, so the same table must give the same digest for ever.
    """
    if table not in _DIGESTS:
        _DIGESTS[table] = _digest(table)
    return _DIGESTS[table]


def _digest(table: Table) -> str:
    sample = np.unique(np.linspace(0, len(table) - 1, _SAMPLED).astype(int))
    facts = {
        "kind": table.kind,
        "shape": table.x.shape,
        "targets": table.target_names,
        "preprocessing": table.preprocessing,
        "subgroups": sorted(table.subgroup),
    }
    digest = blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16)
    arrays: list[NDArray[Any]] = [table.x[sample], table.y]
    columns = [table.split, table.names, *(table.subgroup[k] for k in sorted(table.subgroup))]
    for values in [*arrays, *(np.asarray(column).astype(str) for column in columns)]:
        digest.update(f"{values.dtype}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
