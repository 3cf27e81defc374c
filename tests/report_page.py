"""Fake run folders, and a parser for the report page about them."""

import base64
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import torch
from PIL import Image

from rnc.analyses.standard import write_standard_analyses
from rnc.files import write_json, write_tensors
from rnc.run.folder import RunFolder
from rnc.run.groups import groups_of


def make_run(folder, *, n=40, targets=("age",), seed=0, columns=None, config=None, scores=None):
    """A finished run of n test samples; returns its folder and its true values (n, t)."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0, 90, (n, len(targets)))
    lines = {"name": [f"face-{i}.png" for i in range(n)]}
    for j, target in enumerate(targets):
        lines[target] = true[:, j]
        lines[f"{target}_predicted"] = true[:, j] + rng.normal(0, 3, n)
    lines |= {"camera": np.where(np.arange(n) % 2, "left", "right")} | (columns or {})
    write_csv(folder / "predictions.csv", lines)
    history = {
        "stage": ["encoder"] * 3 + ["head"] * 2,
        "epoch": [1, 2, 3, 1, 2],
        "lr": [0.1] * 5,
        "train_loss": [5.0, 4.0, 3.5, 9.0, 8.0],
        "gap": [2.0, 1.0, 0.5, "", ""],
        "val_error": [9.0, 8.0, 7.0, 6.5, 6.25],
        "seconds": [10.0, 10.5, 10.0, 1.0, 1.0],
    }
    write_csv(folder / "history.csv", history)
    test = {"mae": 2.34567, "r2": 0.91, "spearman": 0.97, "kendall": 0.86, "rmse": 3.0}
    groups = {"camera": {"left": {"n": 20, "mae": 2.5}, "right": {"n": 20, "mae": 2.25}}}
    for name in set(columns or {}) - {"name", *lines_of(targets)}:
        of_column = groups_of(np.asarray(columns[name]))
        groups |= {} if of_column is None else {name: {v: {"n": 1} for v in of_column.names}}
    content = {
        "test": test,
        "validation_error": 2.5,
        "n": {"train": 12580, "test": n},
        "subgroups": groups,
    }
    write_json(folder / "scores.json", content | (scores or {}))
    features = torch.tensor(rng.normal(size=(n, 6)) + true[:, :1] / 9, dtype=torch.float32)
    rows = torch.randperm(n)[:2000]
    write_tensors(folder / "features.safetensors", {"features": features[rows], "rows": rows})
    fit = {"scheme": "probe", "head": "l1", "epochs": 3, "seed": 7}
    model = {"kind": "image", "encoder": "resnet18", "target_names": targets}
    base = {"format": 1, "model": model, "fit": fit, "command": "rnc fit faces.csv"}
    write_json(folder / "config.json", base)
    write_standard_analyses(RunFolder(folder))
    write_json(folder / "config.json", base | (config or {}))
    return folder, true


def lines_of(targets):
    """The columns of predictions.csv that belong to targets."""
    return [column for target in targets for column in (target, f"{target}_predicted")]


def add_pictures(folder, *, signals=False, seed=0):
    """Thumbnails of every second test sample, which differ from one another; returns them."""
    count = len(pd.read_csv(folder / "predictions.csv"))
    rows = torch.arange(0, count, 2)
    rng = np.random.default_rng(seed)
    if signals:
        content = {
            "signals": torch.tensor(rng.normal(size=(len(rows), 2, 64)), dtype=torch.float32)
        }
    else:
        shades = rng.integers(0, 256, (len(rows), 3, 1, 1))
        content = {"images": torch.tensor(np.broadcast_to(shades, (len(rows), 3, 24, 24)).copy())}
        content["images"] = content["images"].to(torch.uint8)
    write_tensors(folder / "thumbnails.safetensors", content | {"rows": rows})
    return rows, *content.values()


def write_csv(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(columns).to_csv(path, index=False)


def sheets_of(path):
    """The pixels of every sheet of pictures in a page."""
    uris = re.findall(r"data:image/webp;base64,([A-Za-z0-9+/=]+)", path.read_text(encoding="utf-8"))
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(uri)))) for uri in uris]


class Page(HTMLParser):
    """What a browser would find in a page: elements, their attributes, scripts and text."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.scripts, self.text, self.bold = [], [], "", []
        self.cells = []
        self.inside = None
        self.feed(path.read_text(encoding="utf-8"))
        self.data = json.loads(self.scripts[0])
        self.figures = self.data["figures"]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")
        elif tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
            return
        if self.inside != "style":
            self.text += data
        if self.inside in ("td", "th", "strong"):
            self.cells[-1] += data
        if self.inside == "strong":
            self.bold.append(data)

    def row(self, name, width):
        start = self.cells.index(name)
        return self.cells[start : start + width]

    def kind(self, kind):
        return [figure for figure in self.figures if figure["kind"] == kind]

    def coloring(self, name, run=0):
        """A column that colours points, and its values at the points of the run's map."""
        names = [column["name"] for column in self.data["columns"]]
        values = self.data["runs"][run]["values"][names.index(name)]
        (figure,) = (f for f in self.kind("map") if f["run"] == run)
        at_points = None if values is None else [values[place] for place in figure["points"]]
        return self.data["columns"][names.index(name)], at_points

    def names_of(self, figure):
        names = self.data["runs"][figure["run"]]["names"]
        return [names[place] for place in figure["points"]]
