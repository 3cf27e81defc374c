"""The page of the server: one file, which loads nothing but what the server itself answers."""

import base64
import hashlib
from importlib.resources import files
from string import Template
from typing import Any

from rnc.report.page import as_json, escape


def _own(name: str) -> str:
    return files("rnc.serve").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE = files("rnc.report").joinpath("style.css").read_text(encoding="utf-8") + _own("page.css")
_SCRIPT = _own("page.js")
POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content security policy: this script and these styles, replies of this server, no network."""


def page_of(model: dict[str, Any]) -> str:
    """The page about a model, of which `model` is what GET /model answers."""
    targets = ", ".join(model["targets"])
    return Template(_own("page.html")).substitute(
        title=escape(f"Predict {targets}"),
        subtitle=escape(model["score"] or f"Run {model['name']}"),
        takes=escape(model["takes"]),
        accept=escape(_ACCEPT.get(model["kind"], ".npz")),
        style=_STYLE,
        model=as_json(model),
        script=_SCRIPT,
    )


_ACCEPT = {"image": "image/*,.npz", "table": ".csv,.tsv,.txt,.npz"}
