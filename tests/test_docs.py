"""docs/extending.md: its code runs, and the files and tests that it names exist."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rnc.analyses.corruption import CORRUPTIONS
from rnc.analyses.registry import ANALYSES
from rnc.encoders import ENCODERS
from rnc.heads.registry import HEADS
from rnc.loss.pairwise import LABEL_DISTANCES
from rnc.methods.registry import OBJECTIVES, REGULARIZERS, ObjectiveSpec, RegularizerSpec

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
NAMES: tuple[dict[str, Any], ...] = (
    ENCODERS,
    LABEL_DISTANCES,
    HEADS,
    OBJECTIVES,
    REGULARIZERS,
    ANALYSES,
    CORRUPTIONS,
)


def test_the_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == TEXT.count("\n## ")  # one for each thing
    seen: dict[str, Any] = {}
    before = [len(known) for known in NAMES]
    with ExitStack() as stack:
        for known in NAMES:
            stack.enter_context(patch.dict(known))  # what an example adds goes with it
        for place, block in enumerate(blocks, start=1):
            exec(compile(block, f"docs/extending.md, block {place}", "exec"), seen)
        assert sum(map(len, NAMES)) == sum(before) + 6
    assert [len(known) for known in NAMES] == before
    assert seen["again"].predict_prepared(seen["X"]).shape == (120, 1)
    assert (tmp_path / "runs" / "table" / "scores.json").exists()
    assert '"age": ' in (tmp_path / "runs" / "table" / "analyses" / "tail.json").read_text()
    assert seen["dusty"].unique().tolist() == [51, 255]


def test_every_file_that_is_named_is_there() -> None:
    files = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", TEXT)
    assert len(set(files)) > 15
    assert not [file for file in files if not (ROOT / file).exists()]


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(test_\w+)`", TEXT)
    assert len(named) >= 7
    tests = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/test_*.py"))
    assert not [name for name in named if f"\ndef {name}(" not in tests]


def row_of(name: str, spec: ObjectiveSpec | RegularizerSpec) -> str:
    """The row of a method in docs/choosing.md, from its entry."""
    rate = weight = ""
    needs = []
    if isinstance(spec, ObjectiveSpec):
        flag, rate = "objective", f"{spec.lr:g}"
        needs += [f"{spec.rows} rows in a batch"] if spec.rows > 1 else []
        needs += [f"{spec.views} views"] if spec.views else []
    else:
        flag = "regularizer"
        weight = "" if spec.weight is None else f"{spec.weight:g}"
        if spec.published_weight is not None:
            weight += f" (published: {spec.published_weight:g})"
    if spec.limits.several_targets:
        needs.append("one target" + (", on a line" if spec.limits.circular_labels else ""))
    needs += ["bins"] if spec.uses_bins else []
    changed = "yes" if spec.original is not None else "no"
    cells = [f"`--{flag} {name}`", spec.title, rate, weight, "; ".join(needs), changed]
    return "| " + " | ".join(cells) + " |"


def test_the_table_of_methods_is_the_registry() -> None:
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    table = text[text.index("## The methods") : text.index("## What each costs")]
    rows = [re.sub(r"(?<=\|) +(?=\|)", " ", row) for row in table.splitlines() if "`--" in row[:5]]
    entries = [*OBJECTIVES.items(), *REGULARIZERS.items()]
    assert rows == [re.sub(r"(?<=\|) +(?=\|)", " ", row_of(*entry)) for entry in entries]
    blind = [name for name, spec in OBJECTIVES.items() if not spec.uses_targets]
    assert f"{' and '.join(f'`{name}`' for name in blind)} do not look at the targets" in table


def test_the_readme_leads_here() -> None:
    assert "docs/extending.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_place_in_the_architecture_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks, _, changes = text.partition("## Which files a change touches")
    hops = re.findall(r"^\| \d+ \| `([\w/.]+)`: `(?:\w+\.)?(\w+)`", walks, flags=re.MULTILINE)
    assert len(hops) == 17 + 16
    for file, name in hops:
        source = (ROOT / "src" / "rnc" / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(def|class) {name}\b", source, flags=re.MULTILINE), (file, name)
    rows = [line.split("|") for line in changes.splitlines() if line.startswith("| a")]
    rows += [line.split("|") for line in changes.splitlines() if line.startswith("| the")]
    assert len(rows) == 10
    for row in rows:
        files = re.findall(r"`([a-z_0-9/]+\.py)`", row[3])
        assert 0 < len(files) <= 5
        assert not [file for file in files if not (ROOT / "src" / "rnc" / file).exists()]
