"""Small pictures of training samples, to show beside the predictions that rest on them.

A run keeps pictures only of the neighbours of its worst test errors. Where the data of the run are
at hand, pictures of all samples that it compares with are made when the server starts.
"""

import base64
import io
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rnc.intervals.reference import Reference
from rnc.json_types import damaged
from rnc.run.folder import ANALYSES_FOLDER, RunFolder
from rnc.run.thumbnails import parse_thumbnails, thumbnails
from rnc.serve.served import ServedModel


@dataclass(frozen=True, eq=False)
class NeighbourPictures:
    """Pictures by the row of a training sample in the data of its run."""

    kind: str
    """images or signals"""
    content: NDArray[Any]
    """As in `rnc.run.thumbnails`: (k, c, s, s) or (k, c, l)."""
    places: dict[int, int]
    """Row in the data -> place in the content."""

    def of(self, row: int) -> dict[str, Any]:
        """The fields of a reply that show a training sample; none if it has no picture."""
        place = self.places.get(row)
        if place is None:
            return {}
        if self.kind == "images":
            return {"picture": _data_uri(self.content[place])}
        values = np.nan_to_num(self.content[place].astype(np.float64))
        return {"signal": [[float(f"{value:.4g}") for value in line] for line in values]}


def find_pictures(served: ServedModel, *, from_data: bool) -> NeighbourPictures | None:
    """The pictures of the training samples that a model compares with, as far as there are some.

    With `from_data`, those of all of them; raises if the data of the run are not at hand.
    """
    if served.explainer is None:
        return None
    find = pictures_from_data if from_data else kept_pictures
    return find(served.run, served.explainer.reference)


def kept_pictures(run: RunFolder, reference: Reference) -> NeighbourPictures | None:
    """The pictures that a run folder holds, of few training samples; None if there are none."""
    if not run.has_analysis("neighbours"):
        return None
    found = run.analysis("neighbours")
    if not found.tensors:
        return None
    near = [one for worst in found.content.get("worst", []) for one in worst["neighbours"]]
    names = reference.names.tolist()
    once = {name for name, count in Counter(names).items() if count == 1}  # others tell nothing
    rows = dict(zip(names, reference.rows.tolist(), strict=True))
    with damaged(run.path / ANALYSES_FOLDER, f"`rnc evaluate {run.path} --with neighbours` helps."):
        pictures = parse_thumbnails(found.tensors, len(found.tensors.get("rows", ())))
    spots = range(len(pictures.rows))
    shown = [one for one in near if one["picture"] in spots and one["name"] in once]
    places = {rows[one["name"]]: one["picture"] for one in shown}
    return NeighbourPictures(pictures.kind, pictures.content, places)


def pictures_from_data(run: RunFolder, reference: Reference) -> NeighbourPictures | None:
    """Pictures of all training samples that a run compares with, from its data; tables have none.

    Raises if the data are not where config.json says, or not as they were.
    """
    made = thumbnails(run.table.x, reference.rows)
    for kind, content in made.items():
        places = {int(row): i for i, row in enumerate(reference.rows)}
        return NeighbourPictures(kind, content, places)
    return None


def _data_uri(pixels: NDArray[np.uint8]) -> str:
    return _encoded(pixels.tobytes(), pixels.shape)


@lru_cache(maxsize=2048)
def _encoded(pixels: bytes, shape: tuple[int, int, int]) -> str:
    channels = np.frombuffer(pixels, np.uint8).reshape(shape)
    shown = channels[:3] if shape[0] >= 3 else np.repeat(channels[:1], 3, axis=0)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(shown.transpose(1, 2, 0))).save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
