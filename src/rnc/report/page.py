"""The HTML of a report. Text from a file stays text, even if it looks like markup.

All text is escaped when it enters the page: `table` escapes its cells, `escape` other text, and
`as_json` keeps data inside its script element. If one text were missed, the page's security policy
would still block every script but the page's own, and every request to the network.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Collection, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from rnc.metrics.bootstrap import Interval
from rnc.report.figures import Figure, file_name

LONG_CELL = 20
"""Most letters of a cell that stays on one line. A longer text may be wrapped."""

SCRIPTS = ("frame.js", "charts.js", "points.js")


def escape(text: object) -> str:
    """Text as HTML, with markup escaped.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return html.escape(str(text))


def number(value: object, digits: int = 4) -> str:
    """A float with four digits, an int with all digits, and a dash for everything else.

    >>> number(12.3), number(20000), number(None), number(float("nan")), number(123456.7)
    ('12.30', '20,000', '-', '-', '123,457')
    """
    if isinstance(value, int):
        return f"{value:,}"
    return _digits(value, digits) if isinstance(value, float) and math.isfinite(value) else "-"


def capital(words: str) -> str:
    """Words with a capital first letter."""
    return words[:1].upper() + words[1:]


def duration(seconds: float | None) -> str:
    """A time that a person reads at a glance.

    >>> duration(9.107), duration(75), duration(7300), duration(None)
    ('9.1 s', '1 min 15 s', '2 h 1 min', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, part = divmod(minutes, 60)
    return f"{hours} h {part} min" if hours else f"{minutes} min {rest} s"


def _digits(value: float, digits: int) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:#.{digits}g}".rstrip(".")


def between(interval: Interval | None) -> str:
    """An interval with three digits; "" for None.

    >>> between(Interval(2.31, 2.5678))
    '2.31 to 2.57'
    """
    return "" if interval is None else f"{_digits(interval.low, 3)} to {_digits(interval.high, 3)}"


def section(title: str, about: str, content: str) -> str:
    """A section of the page; "" without content. The content is HTML, about is plain text."""
    if not content:
        return ""
    name = title.lower().replace(" ", "-")
    return (
        f'<section id="{escape(name)}"><h2>{escape(title)}</h2>'
        f'<p class="about">{escape(about)}</p><div>{content}</div></section>'
    )


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    kind: str = "numbers",
    bold: Collection[tuple[int, int]] = (),
) -> str:
    """A table, whose rows become lists on a narrow screen. The first cell of a row is its name.

    The style sheet has the kinds "numbers" and "settings". `bold` has (row, column) of bold cells.
    """
    lines = []
    for i, (name, *cells) in enumerate(rows):
        data = "".join(
            _cell(title, cell, strong=(i, j) in bold)
            for j, (title, cell) in enumerate(zip(head[1:], cells, strict=True), start=1)
        )
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{data}</tr>')
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(head[0])} table">'
        f'<table class="{kind}" style="--columns: {len(head)}">'
        f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(title: str, text: str, *, strong: bool) -> str:
    kind = ' class="long"' if len(text) > LONG_CELL else ""
    shown = f"<strong>{escape(text)}</strong>" if strong else escape(text)
    return f'<td{kind} data-label="{escape(title)}">{shown}</td>'


def folded(title: str, content: str) -> str:
    """Content that a click unfolds. In print it is always open."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>" if content else ""


def slot(figures: list[Figure], figure: Figure, caption: str, *, note: str = "", file: str) -> str:
    """The place of a figure on the page. The figure is added to `figures`.

    The note is a sentence below the caption. `file` is any text, from which `write_figures` makes
    the names of the figure's files.
    """
    figures.append(figure | {"title": caption, "file": file_name(file)})
    about = f'<p class="small">{escape(note)}</p>' if note else ""
    return (
        f'<figure class="card {figure["kind"]}"><figcaption>{escape(caption)}</figcaption>{about}'
        f'<div class="plot" data-figure="{len(figures) - 1}"></div></figure>'
    )


def grid(slots: Sequence[str], kind: str = "", *, columns: int | None = None) -> str:
    """Figures side by side that fill the width; "" if there are none.

    Unless `columns` is given, two or four figures have two columns, and three or more than four
    have three columns, so that few rows have gaps.
    """
    count = columns or {1: 1, 2: 2, 4: 2}.get(len(slots), 3)
    return f'<div class="grid of-{count} {kind}">{"".join(slots)}</div>' if slots else ""


def fill(
    title: str, subtitle: str, body: str, data: Any, sheets: Sequence[str], *, layout: str
) -> str:
    """The whole page: title and subtitle are text, the body is HTML, and scripts draw the data.

    Sheets are data URIs of pictures. They become the backgrounds of .sheet-0, .sheet-1 and so on.
    The style sheet needs the layout: "single" or "several" runs.
    """
    script = "\n".join(_own(name) for name in SCRIPTS)
    pictures = "".join(
        f'.sheet-{i} {{ background-image: url("{uri}"); }}\n' for i, uri in enumerate(sheets)
    )
    return Template(_own("template.html")).substitute(
        policy=_policy(script),
        title=escape(title),
        subtitle=escape(subtitle),
        layout=escape(layout),
        style=_own("style.css") + pictures,
        body=body,
        data=as_json(data),
        script=script,
    )


def as_json(content: Any) -> str:
    r"""JSON for the inside of a script element. Nothing in it can end the element.

    >>> as_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _own(name: str) -> str:
    return files("rnc.report").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """A content security policy that allows this script, inline styles and pictures, no network."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
