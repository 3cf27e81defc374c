"""Find formulas of a spreadsheet that no program has calculated. Their cells would read as gaps.

A file stores the last value of each formula beside it. A program that only writes formulas leaves
the value empty. Or it writes 0, and marks the workbook to be calculated when it is opened.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, iterparse

from rnc.data.errors import DataError

_FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
_ALL_TO_CALCULATE = re.compile(rb"""fullCalcOnLoad=["'](?:1|true)["']""")


def check_calculated(source: Path, sheet: str) -> None:
    """Raise if a formula of a sheet has no value. The error names the cell.

    `sheet` is the path of the sheet inside the file. An empty text is a value, and reads as a gap.
    """
    with zipfile.ZipFile(source) as archive:
        if not _FORMULA.search(archive.read(sheet)):
            return
        books = [name for name in archive.namelist() if name.endswith("workbook.xml")]
        is_stale = any(_ALL_TO_CALCULATE.search(archive.read(name)) for name in books)
        cells = list(_not_calculated(archive, sheet, is_stale=is_stale))
    if cells:
        more = f", and {len(cells) - 1} more are like it" if len(cells) > 1 else ""
        raise DataError(
            f"{source} cell {cells[0]} holds a formula that no program has calculated{more}. Open "
            "the file in a spreadsheet program and save it, or export the sheet as CSV UTF-8."
        )


def _not_calculated(archive: zipfile.ZipFile, sheet: str, *, is_stale: bool) -> Iterator[str]:
    """The cells whose formulas have no value. With `is_stale`, a 0 counts as no value."""
    with archive.open(sheet) as file:
        for _, element in iterparse(file):
            if _tag(element) == "row":
                for cell in element:
                    parts = {_tag(part): part.text or "" for part in cell}
                    value = parts.get("v", "")
                    is_empty = not value and cell.get("t") != "str"
                    if "f" in parts and (is_empty or (is_stale and value == "0")):
                        yield cell.get("r", "?")
                element.clear()


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]
