"""Guard CSV files: text that a spreadsheet would run as a formula gets an apostrophe in front.

Names of samples can come from files of other people. If a cell begins with = + - @, a tab or a
carriage return, a spreadsheet may read it as a formula, which can send data away. Numbers such as
-5 are not changed, nor is text in Parquet, on the standard output and in Python. `plain` undoes
`guarded`.
"""

import re

import pandas as pd  # type: ignore[import-untyped]

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


def guarded(text: str) -> str:
    """The text, with an apostrophe in front if a spreadsheet would read it as a formula.

    >>> guarded("=HYPERLINK(1)"), guarded("-5"), guarded("a-b")
    ("'=HYPERLINK(1)", '-5', 'a-b')
    """
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def plain(text: str) -> str:
    """The text that was given to `guarded`.

    >>> [plain(guarded(text)) for text in ("=1+1", "'=1", "-5", "it's")]
    ['=1+1', "'=1", '-5', "it's"]
    """
    return text[1:] if _GUARDED.match(text) else text


def guarded_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with guarded texts, also in its header."""
    texts = [name for name in frame if frame[name].dtype.kind not in "iufbcmM"]
    cells = {name: [guarded(v) if isinstance(v, str) else v for v in frame[name]] for name in texts}
    return frame.assign(**cells).rename(columns=guarded) if texts else frame.rename(columns=guarded)


def plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The table that was given to `guarded_frame`, from a file that was read as text."""
    frame = frame.rename(columns=plain)
    return frame.apply(lambda column: column.map(plain)) if len(frame) else frame


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
