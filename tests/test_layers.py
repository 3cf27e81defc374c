"""A module imports its own layer or a lower one."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "rnc"
LAYERS = [
    ["files", "hub", "json_types", "lock", "loss", "printable"],
    ["augment", "encoders", "heads", "intervals", "methods", "metrics", "weights"],
    ["config"],
    ["data", "model"],
    ["training"],
    ["analyses", "run", "trackers"],
    ["experiments", "report", "search", "serve"],
    ["__main__", "cli", "door", "estimator", "estimator_rows"],
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
TESTS = sorted(Path(__file__).parent.rglob("*.py"))


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


def test_files_stay_readable() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in (*FILES, *TESTS)}
    assert not {str(path): number for path, number in lines.items() if number > 400}


def test_imports_are_found() -> None:
    assert imported_topics(SOURCE / "files.py") == set()
    assert imported_topics(SOURCE / "methods" / "labels.py") == {"heads", "loss", "metrics"}


def functions() -> list[tuple[str, int]]:
    """Every function with the lines of its body, its docstring left out."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = node.end_lineno - body[0].lineno + 1 if body and node.end_lineno else 0
                found.append((f"{path.relative_to(SOURCE)}: {node.name}", lines))
    return found


def test_functions_stay_readable() -> None:
    assert [name for name, lines in functions() if lines > 50] == []


def test_a_class_and_a_constant_have_a_name_of_their_own() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if isinstance(node, ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            for name in names:
                if not name.startswith("_"):
                    places.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
