"""The golden files: numbers that the original implementations returned on small inputs."""

import json
from pathlib import Path
from typing import Any


def golden_cases(name: str) -> list[dict[str, Any]]:
    """The cases of tests/golden/NAME.json."""
    text = (Path(__file__).parent / "golden" / f"{name}.json").read_text()
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases
