"""The layout of the report in a real Chromium, on wide screens and on phones."""

import pytest

from browser import CHROMIUM, WHY_NOT
from report_page import add_pictures, make_run, write_csv
from rnc.files import write_json
from rnc.report import write_report

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)]

BASELINES = {"median": {"mae": 21.0}, "boosting": {"mae": 2.0, "seconds": 0.5}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of scheme auto; the second differs in its head."""
    folder, made = tmp_path_factory.mktemp("runs"), []
    for head in ("l1", "mse"):
        auto = {"probe": 3.25, "end2end": 4.5}
        run, _ = make_run(
            folder / f"auto with {head}",
            config={"fit": {"scheme": "auto", "head": head, "seed": 0}},
            scores={"auto": auto, "kept": "probe", "baselines": BASELINES},
        )
        add_pictures(run)
        stages = ["end2end/end2end"] * 4 + ["encoder"] * 4 + ["probe/head"] * 4
        epochs, steps = [1, 2, 3, 4] * 3, [1.0, 0.5, 0.25, 0.125]
        losses = [base + step for base in (0.2, 5.0, 90.0) for step in steps]
        history = {"stage": stages, "epoch": epochs, "train_loss": losses, "gap": ""}
        history |= {"val_error": losses, "seconds": 1.0}
        write_csv(run / "history.csv", history)
        readable = {"camera": {"score": -0.02, "kind": "r2", "chance": 0.0}}
        write_json(run / "analyses" / "readable.json", readable)
        made.append(run)
    return made


@pytest.fixture(scope="module")
def single(runs):
    return write_report(runs[:1])


@pytest.fixture(scope="module")
def several(runs):
    return write_report(runs, runs[0].parent / "report.html")


def test_the_answer_is_the_first_thing_below_the_title(browser, single, several):
    for path, words in ((single, "age: off by 2.35"), (several, "have the same error: 2.35")):
        tab = browser.open(path)
        first = tab.js("document.querySelector('main').firstElementChild.innerText")
        assert words in first
        bottom = "document.querySelector('.answer').getBoundingClientRect().bottom"
        assert tab.js(bottom) < 500


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("which", ["single", "several"])
def test_rows_of_cards_fill_the_page_and_figures_their_cards(browser, request, which, width):
    tab = browser.open(request.getfixturevalue(which), width=width)
    edges = tab.js("""(() => {
      const main = document.querySelector("main").getBoundingClientRect();
      return [...document.querySelectorAll(".grid, .answer")].map((grid) => {
        const boxes = [...grid.children].map((card) => card.getBoundingClientRect());
        const area = grid.parentElement.closest(".two") ? grid.getBoundingClientRect() : main;
        const rows = [...new Set(boxes.map((box) => Math.round(box.top)))];
        return rows.map((top) => {
          const row = boxes.filter((box) => Math.round(box.top) === top);
          const used = Math.max(...row.map((b) => b.right)) - Math.min(...row.map((b) => b.left));
          return used / area.width;
        });
      }).flat();
    })()""")
    assert len(edges) > 5
    assert min(edges) > 0.98
    wide = tab.js("""hosts.map((host) => host.getBoundingClientRect().width /
      host.closest(".card").getBoundingClientRect().width)""")
    assert min(wide) > 0.9
    if which == "single":
        sides = "[...document.querySelectorAll('.two')].map((two) => two.children.length)"
        assert tab.js(sides) == [2, 2]


def test_cards_of_a_row_are_as_high_as_one_another(browser, single):
    tab = browser.open(single)
    bottoms = tab.js("""[...document.querySelectorAll(".two")].map((two) =>
      [...two.children].map((section) => Math.round(
        section.querySelector(".grid").lastElementChild.getBoundingClientRect().bottom)))""")
    assert all(left == right for left, right in bottoms)


def test_every_stage_has_a_name_a_colour_and_an_axis_that_shows_its_curve(browser, single):
    tab = browser.open(single)
    words = tab.js("document.querySelector('.panels .legend').innerText").split("\n")
    assert [word.strip() for word in words] == ["end to end", "encoder", "head (kept)"]
    drawn = tab.js("""[...document.querySelectorAll(".panels .plot .plot")].map((plot) => ({
      title: plot.querySelector("text").textContent,
      colors: [...plot.querySelectorAll("polyline")].map((l) => getComputedStyle(l).stroke),
      ticks: [...plot.querySelectorAll("text[text-anchor=end]")].map((t) => t.textContent),
      high: Math.max(...[...plot.querySelectorAll("polyline")].map((l) => l.getBBox().height)),
    }))""")
    titles = [panel["title"] for panel in drawn]
    assert titles[0] == "validation error (logarithmic)"
    assert titles[1:] == ["end to end: loss", "encoder: loss", "head (kept): loss"]
    assert len(set(drawn[0]["colors"])) == 3
    for i, panel in enumerate(drawn[1:]):
        assert panel["colors"] == [drawn[0]["colors"][i]]
        assert panel["high"] > 100  # of 130: the axis begins near the lowest value
        assert panel["ticks"]
        assert "0" not in panel["ticks"]


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_every_cell_of_every_table_with_its_name(browser, several, width):
    tab = browser.open(several, width=width, phone=True)
    tab.js("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    cells = tab.js("""[...document.querySelectorAll("table td, table tbody th")].map((cell) => {
      const box = cell.getBoundingClientRect();
      const label = getComputedStyle(cell, "::before").content;
      return { left: box.left, right: box.right, high: box.height, label, tag: cell.tagName };
    })""")
    assert len(cells) > 40
    assert all(cell["left"] >= 0 and cell["right"] <= width for cell in cells)
    assert all(cell["high"] > 10 for cell in cells)
    assert all(len(cell["label"]) > 4 for cell in cells if cell["tag"] == "TD")
    hidden = tab.js("""[...document.querySelectorAll(".wide, nav")].filter((part) =>
      part.scrollWidth > part.clientWidth + 1).length""")
    assert hidden == 0


def test_a_wide_screen_shows_the_comparison_without_scrolling(browser, several):
    tab = browser.open(several)
    assert (
        tab.js(
            "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)"
            "(document.querySelector('.wide'))"
        )
        <= 1
    )
    assert "not readable (no better than guessing)" in tab.js(
        "document.querySelector('.wide').innerText"
    )
