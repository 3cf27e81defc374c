"""Docstrings as Markdown: examples and columns of text become blocks of code.

In a terminal, lines that begin with `>>>` and lines in columns read well as they are. Markdown
would make quotes and one long line of them.
"""

import re
from typing import Any

from griffe import Extension, Object

COLUMNS = re.compile(r"\S+ {2,}\S")


class DocstringsAsMarkdown(Extension):
    """Fences what is code in the docstring of every object."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text, with paragraphs of examples or of columns in fences."""
    return "\n\n".join(map(_fenced_paragraph, text.split("\n\n")))


def _fenced_paragraph(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if any(line.startswith(">>> ") for line in lines[:1]):
        return f"```pycon\n{paragraph}\n```"
    if len(lines) > 1 and all(COLUMNS.match(line) for line in lines[:2]):
        return f"```text\n{paragraph}\n```"
    return paragraph
