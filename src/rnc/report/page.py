"""The HTML of a report. What comes from a file is data here, whatever it looks like.

Every text is escaped where it enters: `table` does so for its cells, `escape` for the rest,
`as_json` keeps it inside its script. Should one slip through, the policy of the page still runs no
script but the page's own two, and loads nothing.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from rnc.report.plots import Figure


def escape(text: object) -> str:
    """Text as HTML that shows it letter by letter.

    >>> escape("<b>")
    '&lt;b&gt;'
    """
    return html.escape(str(text))


def number(value: object) -> str:
    """A number with four digits, a count with all of its own; a dash for everything else.

    >>> number(12.3), number(20000), number(None), number(float("nan"))
    ('12.30', '20,000', '-', '-')
    """
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:#.4g}".rstrip(".")
    return "-"


def section(title: str, about: str, content: str) -> str:
    """A section of the page; nothing where it has no content. The content is HTML, about is not."""
    if not content:
        return ""
    return (
        f'<section><h2>{escape(title)}</h2><p class="about">{escape(about)}</p>{content}</section>'
    )


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    kind: str = "numbers",
    bold: Collection[tuple[int, int]] = (),
) -> str:
    """A table that scrolls sideways where it does not fit.

    Args:
        head: names of the columns.
        rows: their cells; the first of a row is its name.
        kind: "numbers" or "settings", for the style sheet.
        bold: (row, column) of cells to print bold.
    """
    lines = []
    for i, (name, *cells) in enumerate(rows):
        marked = [
            f"<strong>{escape(cell)}</strong>" if (i, j) in bold else escape(cell)
            for j, cell in enumerate(cells, start=1)
        ]
        data = "".join(f"<td>{cell}</td>" for cell in marked)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{data}</tr>')
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="wide" tabindex="0"><table class="{kind}" style="--columns: {len(head)}">'
        f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def slot(figures: list[Figure], figure: Figure, caption: str) -> str:
    """A place for a figure, which joins those that the page draws."""
    figures.append(figure)
    height = int(figure["layout"]["height"])
    return (
        f'<figure class="card"><figcaption>{escape(caption)}</figcaption>'
        f'<div class="plot" id="figure-{len(figures) - 1}" style="height: {height}px"></div>'
        "</figure>"
    )


def grid(slots: Sequence[str]) -> str:
    """Figures side by side, as many as the screen is wide; nothing if there are none."""
    return f'<div class="grid">{"".join(slots)}</div>' if slots else ""


def fill(title: str, subtitle: str, body: str, figures: Sequence[Figure]) -> str:
    """The whole page. The body is HTML, the titles are not."""
    template = files("rnc.report").joinpath("template.html").read_text(encoding="utf-8")
    plotly: str = get_plotlyjs()
    # The page's two scripts; the figures are data, not a script.
    own = [
        text.replace("$plotly", plotly)
        for text in re.findall(r"(?s)<script>(.*?)</script>", template)
    ]
    return Template(template).substitute(
        policy=_policy(own),
        title=escape(title),
        subtitle=escape(subtitle),
        body=body,
        plotly=plotly,
        figures=as_json(figures),
    )


def as_json(content: Any) -> str:
    r"""JSON for the inside of a script element, which nothing in it can end.

    >>> as_json("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _policy(scripts: Sequence[str]) -> str:
    """Content security policy: these scripts, inline styles and pictures, and no network."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:"
    )
