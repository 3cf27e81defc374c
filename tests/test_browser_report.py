"""The report in a real Chromium: figures, what a reader can do, and no foreign script runs."""

import numpy as np
import pytest
import torch
from PIL import Image

from browser import CHROMIUM, WHY_NOT
from report_page import add_pictures, make_run
from rnc.files import write_json, write_tensors
from rnc.report import write_report

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)]

MAP = "data.figures.find((figure) => figure.kind === 'map')"
IMAGE = "<img src=x onerror=window.poisoned=1>"
SCRIPT = "</script><script>window.poisoned=1</script>"
COMMENT = "<!--<script>"
LINK = "javascript:window.poisoned=1//"
QUOTE = "\" onmouseover=window.poisoned=1 '"
POISON = (IMAGE, SCRIPT, COMMENT, LINK, QUOTE)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two runs on images with every analysis; names and numbers get in one another's way."""
    folder = tmp_path_factory.mktemp("runs")
    long = "a subgroup with a name that is longer than anyone would like it to be"
    columns = {"place": [f"{long} {i % 4}" for i in range(120)], "height": np.arange(120) * 1e5}
    runs = []
    for seed, name in enumerate(("end to end with L1", "rank-n-contrast, then L1")):
        prices = np.random.default_rng(seed).uniform(1e5, 9e5, 120)
        columns |= {"age": prices, "age_predicted": prices + 1e4 * np.sin(np.arange(120))}
        run, _ = make_run(folder / name, n=120, seed=seed, columns=columns)
        add_pictures(run)
        add_analyses(run)
        runs.append(run)
    return write_report(runs, folder / "report.html")


def add_analyses(run):
    kinds = ("gaussian_noise", "elastic_transform", "jpeg_compression")
    rows = [{"name": k, "severity": s, "error": 2.0 + s} for k in kinds for s in range(1, 6)]
    mean = [{"severity": s, "error": 2.0 + s} for s in range(1, 6)]
    content = {"measure": "mae", "n": 9, "clean": 1.5, "rows": rows, "mean": mean}
    content["types"] = [{"name": kind, "error": 5.0} for kind in kinds]
    write_json(run / "analyses" / "corruption.json", content)
    part = {"n": 30, "mae": 2.0, "low": 1.0, "high": 3.0}
    content = {"ranges": [[0, 20]], "seen": part, "unseen": part}
    write_json(run / "analyses" / "unseen.json", content)
    rows = [{"scheme": "probe", "n": n, "mae": 300 / n} for n in (10, 100, 100_000)]
    write_json(run / "analyses" / "reduced.json", {"rows": rows, "mean": rows})
    transferred = [{"scheme": "probe", "mae": 3.0}]
    write_json(run / "analyses" / "transfer.json", {"data": "other.csv", "rows": transferred})


def bring_up(tab, host):
    """Scroll a figure to the middle of the window."""
    tab.js(f"""document.documentElement.style.scrollBehavior = "auto";
      {host}.scrollIntoView({{ block: "center" }})""")
    tab.settle()


def point_at(tab, kind, place=0, figure=0):
    """Move the mouse onto a sample of a map or scatter; returns the sample's name."""
    host = f'document.querySelectorAll(".{kind} .plot")[{figure}]'
    bring_up(tab, host)
    spot = tab.js(f"""(() => {{
      const cloud = clouds[{host}.dataset.figure], box = {host}.getBoundingClientRect();
      const {{ x, y, points, run }} = cloud.figure;
      return {{ x: box.left + cloud.x(x[{place}]) * box.width / cloud.width,
        y: box.top + cloud.y(y[{place}]) * box.height / cloud.height,
        name: data.runs[run].names[points[{place}]] }};
    }})()""")
    tab.point(spot["x"], spot["y"])
    return spot["name"]


def tip_of(tab):
    return tab.js("tip.hidden ? null : tip.innerText")


def pixels_of(tab, kind):
    return tab.js(f"""[...document.querySelectorAll(".{kind} canvas")].map((c) => c.toDataURL())""")


# ---------------------------------------------------------------------------------------- as it is


def test_every_figure_is_drawn_without_a_complaint_or_a_request(browser, report):
    tab = browser.open(report)
    assert tab.complaints() == []
    assert tab.requests() == [report.as_uri()]
    count = tab.js("data.figures.length")
    assert count > 12
    texts = "hosts.filter((host) => host.querySelectorAll('svg > text').length >= 2)"
    assert tab.js(f"{texts}.length") == count
    blank = tab.js("""[...document.querySelectorAll(".plot canvas")].filter((canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return !data.some(Boolean); }).length""")
    assert blank == 0


def test_pointing_at_a_sample_shows_its_picture_and_the_sample_in_every_run(browser, report):
    tab = browser.open(report)
    assert tip_of(tab) is None
    looks = f"data.runs[0].looks[{MAP}.points[{{}}]]"
    place = next(i for i in range(120) if tab.js(looks.format(i)) >= 0)
    name = point_at(tab, "map", place)
    shown = tip_of(tab)
    assert name in shown
    assert "age, predicted: " in shown
    assert "absolute error: " in shown
    picture = tab.js("getComputedStyle(tip.querySelector('.look')).backgroundImage")
    assert picture.startswith('url("data:image/webp;base64,')
    assert tab.js("tip.querySelector('.look').getBoundingClientRect().width") == 72
    assert tab.js("document.querySelectorAll('.ring').length") == 4  # two maps, two scatters
    tab.point(5, 5)
    assert tip_of(tab) is None
    assert tab.js("document.querySelectorAll('.ring').length") == 0


def test_a_picture_in_the_tip_is_that_of_the_sample(browser, tmp_path):
    run, _ = make_run(tmp_path / "run", n=9)
    shades = torch.tensor([[250, 0, 0], [0, 250, 0], [0, 0, 250]] * 3, dtype=torch.uint8)
    images = shades[:, :, None, None].expand(9, 3, 16, 16)
    write_tensors(run / "thumbnails.safetensors", {"rows": torch.arange(9), "images": images})
    tab = browser.open(write_report([run]))
    for place in range(9):
        name = point_at(tab, "scatter", place)
        if name not in tip_of(tab):  # another sample lies on top of it
            continue
        box = tab.js("(({x, y}) => [x, y])(tip.querySelector('.look').getBoundingClientRect())")
        tab.screenshot(tmp_path / "look.png")
        pixels = np.asarray(Image.open(tmp_path / "look.png").convert("RGB")).astype(int)
        middle = pixels[int(box[1]) + 36, int(box[0]) + 36]
        assert np.abs(middle - shades[int(name[5:-4])].numpy()).max() <= 6, name


def test_pointing_at_a_sample_of_signals_shows_its_line(browser, tmp_path):
    run, _ = make_run(tmp_path / "run")
    add_pictures(run, signals=True)
    tab = browser.open(write_report([run]))
    looks = f"data.runs[0].looks[{MAP}.points[{{}}]]"
    place = next(i for i in range(40) if tab.js(looks.format(i)) >= 0)
    point_at(tab, "map", place)
    lines = tab.js("[...tip.querySelectorAll('.spark polyline')].map((l) => l.points.length)")
    assert lines == [64, 64]


def test_another_column_changes_the_picture_and_its_scale(browser, report):
    tab = browser.open(report)
    before = pixels_of(tab, "map"), tab.js("document.getElementById('scale').innerText")
    choose = "choice.selectedIndex = {}; choice.dispatchEvent(new Event('change'))"
    seen = {before[0][0]}
    for column in range(1, tab.js("choice.options.length")):
        tab.js(choose.format(column))
        seen.add(pixels_of(tab, "map")[0])
    assert len(seen) == tab.js("choice.options.length") == 6
    tab.js(choose.format(1))
    assert tab.js("document.getElementById('scale').innerText").split() == ["left", "right"]
    tab.js(choose.format(0))
    assert (pixels_of(tab, "map"), tab.js("document.getElementById('scale').innerText")) == before
    assert tab.complaints() == []


def test_curves_bars_and_matrices_say_their_numbers(browser, report):
    tab = browser.open(report)
    for kind, words in {
        "curves": ": ",
        "panels .plot": "validation error",
        "rows": "95 % interval",
        "heat": "minus L2 distance",
    }.items():
        host = f'document.querySelector(".{kind} .plot")'
        bring_up(tab, host)
        spot = tab.js(f"""(({{ left, top, width, height }}) =>
          ({{ x: left + width * 0.4, y: top + height * 0.4 }}))({host}.getBoundingClientRect())""")
        tab.point(spot["x"], spot["y"])
        assert words in tip_of(tab), kind


def test_a_map_is_read_with_the_keyboard(browser, report):
    tab = browser.open(report)
    tab.js("document.getElementById('coloring').focus()")
    tab.press("Tab")
    assert tab.js("document.activeElement.matches('.map .plot')")
    names = []
    for _ in range(3):
        tab.press("ArrowRight")
        names.append(tip_of(tab).splitlines()[0])
    assert len(set(names)) == 3
    tab.press("ArrowLeft")
    tab.press("Escape")
    assert tip_of(tab) is None


def test_a_map_zooms_in_and_back(browser, report):
    tab = browser.open(report)
    whole = pixels_of(tab, "map")
    press = "document.querySelectorAll('.map .zoom button')[{}].click()"
    tab.js(press.format(0))
    near = pixels_of(tab, "map")
    assert near[0] != whole[0]
    assert near[1] == whole[1]  # the other map stays
    cloud = "clouds.find(Boolean)"
    span = f"{cloud}.x.back({cloud}.width) - {cloud}.x.back(0)"
    before = tab.js(span)
    tab.js(press.format(0))
    assert tab.js(span) == pytest.approx(0.6 * before)
    inside = tab.js(f"{MAP}.x.findIndex((_, i) => visible({cloud}, i))")
    assert point_at(tab, "map", inside) in tip_of(tab)
    tab.js(press.format(1))
    assert pixels_of(tab, "map") == near
    tab.js(press.format(2))
    assert pixels_of(tab, "map") == whole


# ------------------------------------------------------------------------------------------ safety


def test_poison_from_files_is_shown_and_never_runs(browser, tmp_path):
    n = 40
    columns = {
        "name": [POISON[i % 5] + str(i) for i in range(n)],
        IMAGE: [POISON[i % 5] for i in range(n)],
    }
    target = f"age {SCRIPT}"
    config = {
        "name": f"run {IMAGE}{SCRIPT}{QUOTE}",
        "command": f"rnc fit {SCRIPT}{LINK}",
        "fit": {"scheme": IMAGE, "head": SCRIPT, IMAGE: COMMENT, QUOTE: LINK},
        "model": {"target_names": [target], "encoder": QUOTE},
        "environment": {SCRIPT: IMAGE},
    }
    scores = {"readable": {IMAGE: 0.5}, "auto": {SCRIPT: 1.0}}
    run, _ = make_run(
        tmp_path / IMAGE, n=n, targets=(target,), columns=columns, config=config, scores=scores
    )
    add_pictures(run)
    groups = [{"value": SCRIPT, "n": 3, "mae": 1.0, "low": None, "high": None}]
    write_json(run / "analyses" / "subgroups.json", {QUOTE: {"groups": groups}})
    transferred = {"data": IMAGE, "rows": [{"scheme": SCRIPT}]}
    write_json(run / "analyses" / "transfer.json", transferred)
    tab = browser.open(write_report([run]))
    for place in range(12):
        point_at(tab, "map", place)
        assert any(poison in tip_of(tab) for poison in POISON)
    tab.js("choice.selectedIndex = 1; choice.dispatchEvent(new Event('change'))")
    tab.js("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    for element in ("h1", "figcaption", "td", "th", "#scale", ".legend", "pre", "li"):
        tab.js(f"""document.querySelectorAll("{element}").forEach((e) => {{
          e.dispatchEvent(new MouseEvent("mouseover", {{ bubbles: true }})); e.click(); }})""")
    tab.settle()
    assert tab.js("window.poisoned === undefined")
    assert tab.js("document.querySelectorAll('img, main script, iframe, object').length") == 0
    attributes = "[...document.querySelectorAll('*')].flatMap((e) => e.getAttributeNames())"
    assert not [name for name in tab.js(attributes) if name.startswith("on")]
    for poison in POISON:
        assert poison in tab.js("document.body.textContent")
    assert tab.complaints() == []
    assert len(tab.requests()) == 1


# ---------------------------------------------------------------------------------------- the looks


def background(tab):
    return tab.js("getComputedStyle(document.body).backgroundColor")


def test_the_page_follows_the_system_and_the_button_beats_it(browser, report):
    light, dark = "rgb(245, 246, 248)", "rgb(20, 23, 26)"
    tab = browser.open(report, dark=True)
    tab.js("localStorage.clear()")
    assert background(tab) == dark
    in_dark = pixels_of(tab, "scatter")
    tab.prefer("light")
    tab.settle()
    assert background(tab) == light
    assert pixels_of(tab, "scatter") != in_dark  # canvases are drawn anew
    seen = []
    for _ in range(3):
        tab.js("document.getElementById('theme').click()")
        seen.append((tab.js("document.getElementById('theme').innerText"), background(tab)))
    assert seen == [("Theme: light", light), ("Theme: dark", dark), ("Theme: auto", light)]


def test_paper_is_light_and_everything_is_unfolded(browser, report):
    tab = browser.open(report, dark=True)
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.js("dispatchEvent(new Event('beforeprint'))")
    assert background(tab) == "rgb(255, 255, 255)"
    assert tab.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.js("[...document.querySelectorAll('details')].every((fold) => fold.open)")
    assert len(tab.call("Page.printToPDF")["data"]) > 50_000


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_nothing_scrolls_sideways_and_no_text_overlaps(browser, report, width):
    tab = browser.open(report, width=width, phone=width < 600)
    assert tab.js("document.documentElement.scrollWidth") <= width
    problems = tab.js("""hosts.flatMap((host) => {
      const frame = host.getBoundingClientRect();
      const texts = [...host.querySelectorAll("svg text, .legend .key")].map((element) =>
        ({ box: element.getBoundingClientRect(), text: element.textContent }));
      const found = [];
      texts.forEach(({ box, text }, i) => {
        if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push(["out", text]);
        texts.slice(i + 1).forEach((other) => {
          const wide = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
          const high = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
          if (wide > 1 && high > 2) found.push([text, other.text]);
        });
      });
      return found.map((words) => [data.figures[host.dataset.figure].title, ...words]);
    })""")
    assert problems == []


def test_figures_are_drawn_anew_when_the_window_changes(browser, report):
    tab = browser.open(report, width=1280)
    before = tab.js("document.querySelector('.heat .plot > svg').viewBox.baseVal.width")
    tab.resize(390, 800)
    tab.wait(f"document.querySelector('.heat .plot > svg').viewBox.baseVal.width < {before} - 50")
    assert tab.js("document.documentElement.scrollWidth") <= 390
