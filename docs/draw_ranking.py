"""Draws docs/images/ranking.svg from the code itself: one anchor, its ranking, its denominators.

python docs/draw_ranking.py
"""

from pathlib import Path

import torch

from rnc.loss.pairwise import l1_distance
from rnc.loss.plain import rank

AGES = [20, 30, 0, 70, 10, 45]
ANCHOR = 0
BLUE, GREY, DARK, ORANGE = "#2f6fb5", "#8a8f98", "#22262b", "#d9822b"
WIDTH, HEIGHT, CELL = 760, 430, 84


def text(
    x: float, y: float, words: str, *, size: int = 14, colour: str = DARK, at: str = "middle"
) -> str:
    """One line of text."""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{at}">'
        f"{words}</text>"
    )


def circle(x: float, y: float, age: int, colour: str) -> str:
    """A person with an age."""
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="19" fill="{colour}"/>' + text(
        x, y + 5, str(age), colour="#ffffff"
    )


def label_line() -> list[str]:
    """The batch on the line of ages, the anchor in orange."""
    parts = [
        text(30, 36, "1. A batch on the line of labels; the anchor is 20", at="start", size=15)
    ]
    parts.append(f'<line x1="60" y1="78" x2="700" y2="78" stroke="{GREY}"/>')
    for i, age in enumerate(AGES):
        parts.append(circle(70 + age * 8.8, 78, age, ORANGE if i == ANCHOR else BLUE))
    return parts


def ranked_row() -> list[str]:
    """The samples by label distance, furthest first, with the reach of every denominator."""
    targets = torch.tensor(AGES, dtype=torch.float64)[:, None]
    row = rank(l1_distance(targets[[ANCHOR]], targets))
    itself = int(row.rank_of[0, ANCHOR])
    ranks = [r for r in range(len(AGES)) if r != itself]
    parts = [
        text(30, 136, "2. rank: the others by label distance, furthest first", at="start", size=15),
        text(
            30,
            228,
            "3. contrast: each denominator is a running sum, read at the last tie",
            at="start",
            size=15,
        ),
    ]
    x = {r: 190 + CELL * column for column, r in enumerate(ranks)}
    for r in ranks:
        age = AGES[int(row.order[0, r])]
        parts.append(circle(x[r], 172, age, BLUE))
        parts.append(text(x[r], 206, f"d = {-row.nearness[0, r]:.0f}", size=12, colour=GREY))
    for line, r in enumerate(ranks):
        y = 270 + 32 * line
        last = min(int(row.last_tie[0, r]), max(ranks))
        age = AGES[int(row.order[0, r])]
        parts.append(text(30, y + 5, f"positive {age}", size=13, at="start"))
        left, right = x[ranks[0]] - 24, x[last] + 24
        parts.append(
            f'<rect x="{left:.0f}" y="{y - 11}" width="{right - left:.0f}" height="22" rx="11" '
            f'fill="{BLUE}" opacity="0.18"/>'
        )
        parts.append(f'<circle cx="{x[r]:.0f}" cy="{y}" r="7" fill="{BLUE}"/>')
        count = sum(1 for other in ranks if other <= last)
        parts.append(
            text(x[max(ranks)] + 50, y + 5, f"of {count}", size=12, colour=GREY, at="start")
        )
    return parts


def drawing() -> str:
    """The picture as SVG."""
    body = "\n".join(label_line() + ranked_row())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="Helvetica, Arial, sans-serif" role="img" '
        f'aria-label="How one anchor of a batch is ranked and contrasted">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    """Write the picture."""
    (Path(__file__).parent / "images" / "ranking.svg").write_text(drawing())


if __name__ == "__main__":
    main()
