"""A cache of the features of frozen encoders on disk: one .safetensors file per key.

A key is a hash of everything that the features depend on, so a cached file is never out of date.
Files are written atomically. The modification time of a file is that of its last use. The least
recently used files are deleted once the folder exceeds the limit of the image cache.
"""

import json
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from rnc.data.cache_entries import cache_limit, default_cache
from rnc.files import DamagedFileError, read_tensors, sweep, write_tensors

_ENDING = ".safetensors"


class FeatureEntry(NamedTuple):
    """The features of one set of samples by one encoder."""

    file: Path
    size: int
    """Bytes on disk."""
    last_use: float
    """Seconds since 1970."""


def feature_cache() -> Path:
    """The folder of all cached features, beside that of the images."""
    return default_cache().with_name("features")


def feature_entries() -> list[FeatureEntry]:
    """The cached files, sorted by last use, the latest first."""
    found = []
    for file in feature_cache().glob(f"*{_ENDING}"):
        with suppress(OSError):  # another process deleted it
            status = file.stat()
            found.append(FeatureEntry(file, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: -entry.last_use)


def key_of(facts: Mapping[str, Any]) -> str:
    """The key of features that depend on these facts: a hash of them. They are of JSON types."""
    return blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=12).hexdigest()


def read_features(key: str) -> dict[str, Tensor] | None:
    """The features of a key; None if there are none, or if the file is damaged."""
    file = feature_cache() / f"{key}{_ENDING}"
    if not file.exists():
        return None
    try:
        tensors, _ = read_tensors(file)
    except (DamagedFileError, OSError) as error:
        warnings.warn(f"{error} The features are computed again.", stacklevel=2)
        return None
    with suppress(OSError):  # the cache may be read-only
        os.utime(file)
    return tensors


def write_features(key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Cache features for later runs. If the disk is full or read-only, this only warns."""
    try:
        sweep(feature_cache())
        _make_room(sum(tensor.nbytes for tensor in tensors.values()))
        write_tensors(feature_cache() / f"{key}{_ENDING}", tensors, dict(facts))
    except OSError as error:
        warnings.warn(
            f"Features of the frozen encoder are not kept for the next run: {error}.", stacklevel=2
        )


def _make_room(needed: int) -> None:
    entries = feature_entries()
    excess = sum(entry.size for entry in entries) + needed - cache_limit()
    for entry in reversed(entries):
        if excess > 0:
            entry.file.unlink(missing_ok=True)
            excess -= entry.size
