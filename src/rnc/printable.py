"""Escape control characters in the user's data before a terminal shows them.

The name of a column or file may contain any character, and a terminal obeys escape codes: they move
the cursor, rename the window or change what was printed before.
"""

import re

# Control characters except tab and line feed, marks that reverse the direction of the text, and
# surrogates, which stand for bytes of a file name that are not UTF-8.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = re.compile("[\t\n]")


def printable(text: str) -> str:
    r"""The text with control characters escaped. Line breaks and tabs stay.

    >>> print(printable("age\x1b[2J\r"))
    age\x1b[2J\r
    """
    return _CONTROL.sub(_written_out, text)


def on_one_line(text: str) -> str:
    r"""The text with control characters escaped, also line breaks and tabs.

    >>> print(on_one_line("two\nlines"))
    two\nlines
    """
    return _BREAKS.sub(_written_out, printable(text))


def _written_out(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]
