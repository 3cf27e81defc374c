"""Runs the cases of a fuzzer and counts their outcomes."""

import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
import pytest

Verdict = Literal["right", "refused"]
TryCase = Callable[[np.random.Generator], Verdict]

COLUMNS = ("right", "refused", "silent", "tracebacks", "lost")
FAULTS = COLUMNS[2:]
SHOWN = 5
"""Faults that a failing test shows in full."""


class Silent(Exception):
    """A wrong outcome without a word."""


class Lost(Exception):
    """Work of the user that is gone or mixed up."""


class Attack:
    """The cases of one fuzzer that one test has to try; call it with the fuzzer."""

    def __init__(self, name: str, cases: range) -> None:
        self.name = name
        self.cases = cases
        self.counts: Counter[str] = Counter()

    def __call__(self, try_case: TryCase) -> None:
        """Try all cases; fail with the first faults if there are any."""
        self.try_all(
            {f"case {n}": partial(try_case, generator(self.name, n)) for n in self.cases},
            f"pytest tests/attack -k {self.name} --attack-cases 1 --attack-first NUMBER",
        )

    def try_all(self, cases: Mapping[str, Callable[[], Verdict]], repeat: str) -> None:
        """Try cases that have names; `repeat` says how to repeat one."""
        faults = []
        for name, case in cases.items():
            outcome, text = _outcome(case)
            self.counts[outcome] += 1
            if outcome in FAULTS:
                faults.append(f"{name}, {outcome}: {text}")
        if faults:
            head = f"{len(faults)} of {len(cases)} cases of {self.name!r} went wrong."
            text = "\n\n".join([f"{head} To repeat one: {repeat}", *faults[:SHOWN]])
            pytest.fail(text, pytrace=False)


def _outcome(case: Callable[[], Verdict]) -> tuple[str, str]:
    try:
        return case(), ""
    except Silent as fault:
        return "silent", str(fault)
    except Lost as fault:
        return "lost", str(fault)
    except Exception:
        return "tracebacks", traceback.format_exc()


def generator(name: str, number: int) -> np.random.Generator:
    """The random numbers of one case; other fuzzers and other cases have others."""
    return np.random.default_rng([zlib.crc32(name.encode()), number])


def table(counts: dict[str, Counter[str]]) -> list[str]:
    """Lines of Markdown: a row per fuzzer and, below several, their sum."""
    rows = sorted(counts.items())
    if len(rows) > 1:
        rows.append(("altogether", sum((count for _, count in rows), Counter())))
    heads = ("fuzzer", "cases", *COLUMNS)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, count in rows:
        cells = [f"{number:,}" for number in (count.total(), *(count[key] for key in COLUMNS))]
        lines.append(f"| {' | '.join([name, *cells])} |")
    return lines
