"""Count the categories of new data that training has not seen."""

from typing import Any

import pandas as pd  # type: ignore[import-untyped]

from rnc.data.columns import as_text
from rnc.data.errors import first_few

_SHOWN = 5  # values in a sentence


def unseen_categories(frame: pd.DataFrame, preprocessing: dict[str, Any]) -> tuple[str, ...]:
    """A note for each column with values that training has not seen, with the number of rows.

    >>> frame = pd.DataFrame({"city": ["Oslo", "Bonn", None, "Bonn"]})
    >>> fitted = {"name": "city", "type": "category", "categories": ["Oslo", "Rome"], "gaps": False}
    >>> unseen_categories(frame, {"columns": [fitted]})[0]
    'city: 2 of 4 rows have values that training has not seen (Bonn). They are \
encoded as none of its 2 known values.'
    """
    found = UnseenCategories(preprocessing)
    found.add(frame)
    return found.notes()


class UnseenCategories:
    """Values that training has not seen, counted over several frames."""

    def __init__(self, preprocessing: dict[str, Any]) -> None:
        columns = preprocessing["columns"]
        self.known = {c["name"]: c["categories"] for c in columns if c["type"] == "category"}
        self.rows = 0
        self.counts: dict[str, int] = {}
        self.first: dict[str, dict[str, None]] = {}
        """The first few such values by column, in the order of the rows."""

    def add(self, frame: pd.DataFrame) -> None:
        """Count the unseen values of a frame."""
        self.rows += len(frame)
        for name, categories in self.known.items():
            texts = as_text(frame[name]).dropna() if name in frame else pd.Series(dtype=object)
            new = texts[~texts.isin(categories)]
            if len(new):
                self.counts[name] = self.counts.get(name, 0) + len(new)
                first = self.first.setdefault(name, {}) | dict.fromkeys(new.unique())
                self.first[name] = dict.fromkeys(list(first)[: _SHOWN + 1])

    def notes(self) -> tuple[str, ...]:
        """A note for each column that has such values."""
        return tuple(
            f"{name}: {self.counts[name]} of {self.rows} rows have values that training has not "
            f"seen ({first_few(self.first[name], _SHOWN)}). They are encoded as none of its "
            f"{len(categories)} known values."
            for name, categories in self.known.items()
            if name in self.counts
        )
