"""Hashes of a table: names for its run folders, and a check whether data have changed.

digest_of          a name for the table: a hash of all labels and of 64 inputs
fingerprint_of     a hash of every byte of each part
check_fingerprint  raises if data have changed since a run or study began, and says which part
"""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rnc.data.errors import DataError
from rnc.data.inputs import essential
from rnc.data.names import NumberedRows

if TYPE_CHECKING:
    from rnc.data.table import Table

_SAMPLED = 64  # inputs that the digest depends on
_BLOCK = 2**25  # bytes that a thread hashes at a time; another number gives other fingerprints


def digest_of(table: "Table") -> str:
    """A hash of all targets, names, splits, subgroups and weights, and of 64 of the inputs.

    It names run folders and studies. So later versions must give the same digest for a table.
    """
    facts = {
        "kind": table.kind,
        "shape": table.x.shape,
        "targets": table.target_names,
        "preprocessing": essential(table.preprocessing, table.kind),
        "subgroups": sorted(table.subgroup),
    }
    digest = blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16)
    sample = np.unique(np.linspace(0, len(table) - 1, _SAMPLED).astype(int))
    columns = [table.split, table.names]
    columns += [table.subgroup[name] for name in sorted(table.subgroup)]
    texts = [np.asarray(column).astype(str) for column in columns]
    weights = [values for values in (table.weight, table.ends) if values is not None]
    for values in (table.x[sample], table.y, *texts, *weights):
        digest.update(f"{values.dtype}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def fingerprint_of(table: "Table") -> dict[str, Any]:
    """The number of rows, and hashes of inputs, targets, names, split, subgroups and weights.

    Inputs are hashed as the encoder gets them: prepared columns, signals, decoded pixels. The hash
    includes the preprocessing, since other names of categories can give the same numbers.
    """
    subgroups = sorted(table.subgroup)
    weights = {} if table.weight is None else {"weights": _hash("", table.weight)}
    weights |= {} if table.ends is None else {"ends of targets": _hash("", table.ends)}
    return {
        "rows": len(table),
        "inputs": _hash([table.kind, essential(table.preprocessing, table.kind)], table.x),
        "targets": _hash(list(table.target_names), table.y),
        "names": _hash("", _text(table.names)),
        "split": _hash("", _text(table.split)),
        "subgroups": _hash(subgroups, *(_text(table.subgroup[name]) for name in subgroups)),
        **weights,
    }


def check_fingerprint(
    before: Mapping[str, Any] | None, table: "Table", owner: str, advice: str
) -> None:
    """Raise unless a table is the one whose fingerprint was stored.

    Args:
        before: the stored fingerprint; None if the version that stored it had none.
        table: the data as they are now.
        owner: what was started on them, such as a run folder.
        advice: what to do, a sentence.
    """
    if before is None:
        return
    now = table.fingerprint
    parts = [part for part in dict.fromkeys([*now, *before]) if part != "rows"]
    changed = [part for part in parts if before.get(part) != now.get(part)]
    if changed:
        counts = "" if before.get("rows") == now["rows"] else f" ({before.get('rows')} rows then"
        counts += f", {now['rows']} now)" if counts else ""
        raise DataError(
            f"The data of {owner} have changed since it was started: other {', '.join(changed)}"
            f"{counts}. {advice}"
        )


def _text(values: NDArray[Any] | NumberedRows) -> NDArray[np.str_] | NumberedRows:
    """Values as texts. NumberedRows stay: they become texts block by block, while hashed."""
    return values if isinstance(values, NumberedRows) else np.asarray(values).astype(str)


def _hash(label: Any, *arrays: NDArray[Any] | NumberedRows) -> str:
    """A hash of a label and of every byte of some arrays, computed with a thread per core."""
    digest = blake2b(json.dumps(label, sort_keys=True, default=str).encode(), digest_size=16)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for values in arrays:
            digest.update(f"{values.dtype.str}{values.shape}".encode())
            rows = max(1, _BLOCK // max(1, values[:1].nbytes))
            starts = range(0, len(values), rows)
            for block in pool.map(lambda i: _block(values[i : i + rows]), starts):  # noqa: B023
                digest.update(block)
    return digest.hexdigest()


def _block(values: NDArray[Any]) -> bytes:
    content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return blake2b(content.data, digest_size=16).digest()
