"""Rank-N-Contrast: deep regression with representations that keep the order of the labels.

The names below are the public ones; docs/api.md says what each does and which are stable. Each is
imported when it is first used. So `import rnc` is fast, and the loss imports torch only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `_LATER` imports, for type checkers and editors
    from rnc.analyses.registry import analyse
    from rnc.config import FitConfig
    from rnc.data.source import DataSource
    from rnc.data.table import Table, read_table, table_from_arrays
    from rnc.door import fit
    from rnc.estimator import RnCRegressor
    from rnc.loss import RnCLoss, rnc_loss, theory
    from rnc.loss.pairwise import circular
    from rnc.model import Regressor, load
    from rnc.report import write_report
    from rnc.run.evaluate import evaluate
    from rnc.run.export import export_onnx as export
    from rnc.run.folder import RunFolder
    from rnc.training.record import Record

__version__ = "0.1.0"

__all__ = [
    "DataSource",
    "FitConfig",
    "Record",
    "Regressor",
    "RnCLoss",
    "RnCRegressor",
    "RunFolder",
    "Table",
    "__version__",
    "analyse",
    "circular",
    "evaluate",
    "export",
    "fit",
    "load",
    "read_table",
    "rnc_loss",
    "table_from_arrays",
    "theory",
    "write_report",
]

_LATER = {
    "DataSource": ("rnc.data.source", "DataSource"),
    "FitConfig": ("rnc.config", "FitConfig"),
    "Record": ("rnc.training.record", "Record"),
    "Regressor": ("rnc.model", "Regressor"),
    "RnCLoss": ("rnc.loss", "RnCLoss"),
    "RnCRegressor": ("rnc.estimator", "RnCRegressor"),
    "RunFolder": ("rnc.run.folder", "RunFolder"),
    "Table": ("rnc.data.table", "Table"),
    "analyse": ("rnc.analyses.registry", "analyse"),
    "circular": ("rnc.loss.pairwise", "circular"),
    "evaluate": ("rnc.run.evaluate", "evaluate"),
    "export": ("rnc.run.export", "export_onnx"),
    "fit": ("rnc.door", "fit"),
    "load": ("rnc.model", "load"),
    "read_table": ("rnc.data.table", "read_table"),
    "rnc_loss": ("rnc.loss", "rnc_loss"),
    "table_from_arrays": ("rnc.data.table", "table_from_arrays"),
    "theory": ("rnc.loss", "theory"),
    "write_report": ("rnc.report", "write_report"),
}
"""The module and the attribute behind each public name."""


def __getattr__(name: str) -> Any:
    if name == "loss":  # the package, as in rnc.loss.theory, without an import of its own
        return import_module("rnc.loss")
    if name not in _LATER:
        raise AttributeError(f"module 'rnc' has no attribute {name!r}")
    module, attribute = _LATER[name]
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "rnc":
            raise
        raise ModuleNotFoundError(_needs(f"rnc.{name}", error.name), name=error.name) from error


def _needs(what: str, package: str) -> str:
    """The error message for a missing dependency, as after an install with --no-deps."""
    return (
        f"{what} needs {package}, which is not installed. The loss needs torch alone; for all the "
        "rest, `pip install rank-n-contrast` without --no-deps."
    )


def __dir__() -> list[str]:
    return sorted(__all__)
