"""The schema of a run folder's config.json, and the check of a file that was read."""

from typing import Any, Literal, TypedDict

from rnc.augment.configs import AUGMENTS
from rnc.data.prepared import check_preprocessing
from rnc.data.source import DataSource
from rnc.heads import HeadConfig
from rnc.json_types import check_fields, check_json


class _ConfigFile(TypedDict, total=False):
    model: dict[str, Any]
    fit: dict[str, Any]
    resolved: dict[str, Any]
    rates: dict[str, float]
    data: dict[str, Any] | None
    command: str
    environment: dict[str, str]
    fingerprint: dict[str, str | int]
    name: str | None
    encoder_from: str
    weights: dict[str, str]
    evaluation_of: str
    converted_from: list[str]


def check_config_file(config: dict[str, Any], model: type[Any], *, complete: bool) -> None:
    """Raise ValueError unless each part has the types that its readers need.

    Args:
        config: the content of the file.
        model: the dataclass of the entry "model".
        complete: whether all required fields of a model must be there.
    """
    check_json(config, _ConfigFile, "")
    _check_model(config.get("model", {}), model, complete=complete)
    if data := config.get("data"):
        check_fields({"source": "", **data}, DataSource, "data", all_known=complete)


def _check_model(model: dict[str, Any], cls: type[Any], *, complete: bool) -> None:
    """Raise ValueError unless the entry "model" has the types that its readers need."""
    check_fields(model, cls, "model", all_known=complete, complete=complete)
    kind, head = model.get("kind"), model.get("head", {})
    if complete or kind is not None:
        check_json(kind, Literal["image", "signal", "table", "volume"], "model.kind")
    known = complete and "options" in head
    check_fields(head, HeadConfig, "model.head", all_known=known, complete=complete)
    augment = AUGMENTS[kind or "table"]
    check_fields(
        model.get("augment", {}), augment, "model.augment", all_known=False, complete=complete
    )
    check_preprocessing(model.get("preprocessing", {}), kind or "", "model.preprocessing")
