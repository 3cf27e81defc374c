"""Every script in docs/ and examples/ runs, and prints what it promises."""

import re
import runpy
from pathlib import Path

import pytest

from rnc.loss import equation

ROOT = Path(__file__).parent.parent
EXAMPLES, DOCS = ROOT / "examples", ROOT / "docs"


def test_every_script_has_a_test() -> None:
    """A new script belongs here."""
    scripts = {path.name for folder in (DOCS, EXAMPLES) for path in folder.rglob("*.py")}
    site = {"site_hooks.py", "site_docstrings.py"}  # make docs runs them
    assert scripts - site == {"own_loop.py", "order_a_batch.py", "draw_ranking.py"}


def test_the_page_of_examples_runs_each_of_them() -> None:
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    named = re.findall(r"^python examples/(\w+\.py)$", page, flags=re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in EXAMPLES.glob("*.py"))


def test_the_own_loop_learns_and_stays_short(capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / "own_loop.py"
    error = runpy.run_path(str(path))["main"]()
    assert error < 1.0
    assert "lowest possible" in capsys.readouterr().out
    assert len(path.read_text().splitlines()) <= 60


def test_the_loss_orders_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    correlation = runpy.run_path(str(EXAMPLES / "order_a_batch.py"))["main"]()
    assert correlation > 0.95
    assert "order" in capsys.readouterr().out


def test_the_picture_of_a_ranking_is_the_one_that_the_code_draws() -> None:
    drawn = runpy.run_path(str(DOCS / "draw_ranking.py"))["drawing"]()
    assert drawn == (DOCS / "images" / "ranking.svg").read_text()
    reaches = re.findall(r">of (\d)<", drawn)  # 70, 45, 0, and the tie of 30 and 10
    assert reaches == ["1", "2", "3", "5", "5"]


def test_how_it_works_quotes_the_equation_and_names_files_that_exist() -> None:
    text = (DOCS / "how-it-works.md").read_text(encoding="utf-8")
    code = Path(equation.__file__).read_text(encoding="utf-8")
    quoted = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)[0]
    body = "".join(f"    {line}\n" for line in quoted.splitlines())
    assert body in code
    files = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(files) > 15
    assert not [file for file in files if not (DOCS / file).exists()]
