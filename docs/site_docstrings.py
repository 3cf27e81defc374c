"""Docstrings as Markdown: examples and columns of text become blocks of code.

In a terminal, lines that begin with `>>>` and lines in columns read well as they are. Markdown
would make quotes and one long line of them. Fields that are annotated with their help, as those of
FitConfig are, show it as their docstring.
"""

import importlib
import re
from functools import cache
from typing import Any, get_type_hints

from griffe import Attribute, Class, Docstring, Expr, ExprSubscript, ExprTuple, Extension, Object

COLUMNS = re.compile(r"\S+ {2,}\S")


class DocstringsAsMarkdown(Extension):
    """Fences what is code in the docstring of every object."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        """Split `Annotated[type, help]` into the type and a docstring."""
        for field in cls.attributes.values():
            if type_of(field) is not None:
                field.annotation = type_of(field)
                field.docstring = Docstring(_help(cls.module.path, cls.name)[field.name])


def type_of(field: Attribute) -> str | Expr | None:
    """The type in a field's `Annotated[...]`, if it has one."""
    said = field.annotation
    if isinstance(said, ExprSubscript) and str(said.left) == "Annotated":
        assert isinstance(said.slice, ExprTuple)
        return said.slice.elements[0]
    return None


@cache
def _help(module: str, name: str) -> dict[str, str]:
    """What each annotated field of a class is for, by its name."""
    hints = get_type_hints(getattr(importlib.import_module(module), name), include_extras=True)
    return {
        field: next((word for word in hint.__metadata__ if isinstance(word, str)), "")
        for field, hint in hints.items()
        if hasattr(hint, "__metadata__")
    }


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
