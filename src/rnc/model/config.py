"""config.json of a run folder: everything that rebuilds a model except its weights."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnc.augment import check_test_views
from rnc.data.config_file import check_config_file
from rnc.data.formats import suffix_of
from rnc.data.source import stored_side
from rnc.data.sources import TABLES
from rnc.files import CONFIG_FILE, contents
from rnc.hub import is_hub_address, parse_address
from rnc.json_types import check_json, damaged

FORMAT = 2
"""Version of the run folder, in config.json; version 1 stored options of a head elsewhere."""
READABLE_FORMATS = (1, FORMAT)
CONFIG_ADVICE = "Restore it as it was, or fit again with another --out."
CONVERTED_FROM = "converted_from"
"""Entry of config.json: the files of other code that a model was converted from."""


@dataclass(frozen=True)
class ModelConfig:
    """Everything that rebuilds a Regressor except its weights, as JSON types."""

    kind: str
    """image, signal, table or volume."""
    encoder: str
    """Name of the encoder; "own" for a module of the caller."""
    input_shape: tuple[int, ...]
    """Shape of one view, as the encoder sees it."""
    augment: dict[str, Any]
    head: dict[str, Any]
    target_names: tuple[str, ...]
    preprocessing: dict[str, Any] = field(default_factory=dict)
    """What `rnc.data.read_inputs` needs to prepare new data, as in the Table."""
    test_views: str = "plain"
    """The views that features are averaged over, a name in `rnc.augment.TEST_VIEWS`."""
    projected: bool = False
    """Whether the encoder was frozen, with a projection on its features."""

    def __post_init__(self) -> None:
        check_test_views(self.test_views, self.kind)
        object.__setattr__(self, "input_shape", tuple(self.input_shape))
        object.__setattr__(self, "target_names", tuple(self.target_names))


def read_config(folder: Path, *, complete: bool = False) -> dict[str, Any]:
    """The config.json of a run folder of this version or an older one, its types checked.

    With `complete`, every entry that a model needs must be there.
    """
    path = folder / CONFIG_FILE
    if not path.exists():
        if is_hub_address(folder):
            address = parse_address(folder)
            name = address.repository.partition("/")[2]
            raise FileNotFoundError(
                f"{address} is on the hub; a folder is needed here. Fetch it with `hf download "
                f"{address.repository} --local-dir {name}`, and name {name}."
            )
        content = [p.name for p in contents(folder)] if folder.is_dir() else "no such folder"
        raise FileNotFoundError(
            f"{folder} is no run folder: it needs a {CONFIG_FILE}; got {content}."
        )
    with damaged(path, CONFIG_ADVICE):
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        check_json(config, dict[str, Any], "")
    if config.get("format") not in READABLE_FORMATS:
        raise ValueError(
            f"{path} has format {config.get('format')!r}, this version reads 1 to {FORMAT}. Use "
            "the version of rank-n-contrast that made the run, or train again."
        )
    with damaged(path, CONFIG_ADVICE):
        check_config_file(config, ModelConfig, complete=complete)
    return config


def model_config_of(content: Mapping[str, Any]) -> ModelConfig:
    """The ModelConfig of a config.json; adds how images were read if an old version wrote it."""
    config = ModelConfig(**content["model"])
    source = content.get("data", {}).get("source")
    is_marked = config.kind != "image" or not config.preprocessing.keys().isdisjoint(
        ("fit", "shape")
    )
    if is_marked or source is None or suffix_of(Path(source)) not in TABLES:
        return config
    files = {"channels": 3, "fit": "crop", "side": stored_side(config.augment["size"])}
    return dataclasses.replace(config, preprocessing=files | config.preprocessing)


def check_is_run(folder: Path, content: Mapping[str, Any]) -> None:
    """Raise if a folder is an evaluation of a run, as its config.json says."""
    if "evaluation_of" in content:
        raise FileNotFoundError(
            f"{folder} is an evaluation of {content['evaluation_of']} and has no model. Use that "
            "run."
        )


def check_is_finished(weights: Path, content: Mapping[str, Any]) -> None:
    """Raise if the file of a run's model weights is missing; its config.json tells why."""
    folder = weights.parent
    if weights.exists():
        return
    if CONVERTED_FROM in content:
        raise FileNotFoundError(
            f"{folder} holds an encoder without a head. Train one on it: `rnc fit DATA "
            f"--encoder-from {folder} --out RUN`."
        )
    raise FileNotFoundError(
        f"{folder} has no {weights.name}: the run is not finished. Continue it with `rnc resume "
        f"{folder}`."
    )
