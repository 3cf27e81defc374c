"""A module imports its own layer or a lower one."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rnc"
LAYERS = [
    ["files", "loss"],
    ["augment", "encoders", "heads", "methods", "metrics"],
    ["config"],
    ["data", "model"],
    ["training"],
    ["analyses", "run"],
    ["experiments", "report", "search"],
    ["cli", "estimator"],
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imported_topics(path: Path) -> set[str]:
    """The topics of rnc that a file imports, wherever in the file."""
    topics = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        topics |= {name.split(".")[1] for name in names if name.startswith("rnc.")}
    return topics


def topic(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    assert topic(path) in LEVEL, f"{path.name} has no layer: add it to LAYERS"
    too_high = {name for name in imported_topics(path) if LEVEL[name] > LEVEL[topic(path)]}
    assert not too_high, f"{topic(path)} imports {too_high} from a higher layer"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_imports_are_found() -> None:
    assert imported_topics(SOURCE / "files.py") == set()
    assert imported_topics(SOURCE / "methods" / "labels.py") == {"heads", "loss", "metrics"}
