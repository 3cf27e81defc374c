"""docs/theory.md: its examples have the results that it states, and its functions exist."""

import doctest
import re
from pathlib import Path

from rnc.loss import theory, theory_generalization

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")


def test_the_examples_give_what_the_page_says() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == TEXT.count("```python") == 10
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "theory.md", None, None)
    assert len(example.examples) > 25
    said: list[str] = []
    doctest.DocTestRunner().run(example, out=said.append)
    assert "".join(said) == ""


def test_every_function_of_the_theory_is_in_the_first_table() -> None:
    table = TEXT.split("## ")[0]
    public = {
        name
        for module in (theory, theory_generalization)
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
        if not name.startswith("_") and not isinstance(value, type)
    }
    assert public - {"check_delta"} == set(re.findall(r"`(\w+)`", table))
