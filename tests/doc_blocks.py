"""Blocks of code in README.md and the pages of the site, and what the tests do with each.

A block of python or bash is run by tests/test_docs_walk.py, unless a comment above it, or on the
first line of its page, says otherwise:

    <!-- run: tests/test_docs_theory.py -->    another test runs it
    <!-- not run: needs a GPU -->              nothing runs it, for this reason

Blocks of text and bibtex are no code.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.rglob("*.md")),
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
]
CODE, OTHER = ("python", "bash"), ("text", "bibtex")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- ((?:not )?run: [^\n]*) -->\s*\Z")
_PAGE_MARK = re.compile(r"\A<!-- ((?:not )?run: [^\n]*) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, what it is, and the comment that says what is done with it."""

    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"

    @property
    def is_code(self) -> bool:
        return self.language not in OTHER

    @property
    def is_walked(self) -> bool:
        return self.is_code and not self.mark

    def lines(self) -> list[str]:
        """Lines of a shell, each whole, without comments and empty ones."""
        whole = self.text.replace("\\\n", " ").splitlines()
        return [line for line in whole if line.strip() and not line.startswith("#")]

    def commands(self) -> list[list[str]]:
        """The words of lines that call rnc, after that word."""
        lines = [line for line in self.lines() if line.startswith("rnc ") or line == "rnc"]
        return [shlex.split(line, comments=True)[1:] for line in lines]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    of_page = _PAGE_MARK.match(text)
    found = []
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()]
        mark = _MARK.search(before) or of_page
        name = page.relative_to(ROOT).as_posix()
        line = before.count("\n") + 1
        found.append(Block(name, line, fence[1], fence[2], mark[1] if mark else ""))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
