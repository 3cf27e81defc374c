"""A real `rnc serve`: requests of all sorts at once, a browser, Ctrl-C."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
from browser import CHROMIUM, WHY_NOT, Browser, Tab
from serve_cases import photo, photo_run
from serve_load import Server, mixed

KNOWN = {400, 404, 405, 408, 413, 415, 422, 503}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    run = photo_run(tmp_path_factory.mktemp("runs"))
    server = Server(run, tmp_path_factory.mktemp("server"), "--pictures")
    yield server
    server.process.kill()
    server.process.wait()


def test_mixed_requests_at_once_are_answered_or_refused_in_words(server: Server) -> None:
    requests = mixed("image", 120)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(server.send, requests))
    good = [status for (status, _), sent in zip(replies, requests, strict=True) if sent.is_good]
    assert set(good) == {200}
    bad = [reply for reply, sent in zip(replies, requests, strict=True) if not sent.is_good]
    assert {status for status, _ in bad} <= KNOWN, {status for status, _ in bad}
    assert all(json.loads(body)["error"]["message"] for _, body in bad)
    assert "Traceback" not in server.text
    assert server.touched == []
    assert list(server.place.iterdir()) == []


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)
def test_the_page_in_a_browser(server: Server, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "<b>face.png").write_bytes(photo(120))
    (tmp_path / "none.png").write_bytes(b"no")
    tab = browser.open(server.address, dark=True)
    dark = tab.js("getComputedStyle(document.body).backgroundColor")
    assert tab.js("document.querySelector('label[for=files]').textContent").startswith(
        "Drop photos"
    )
    choose(tab, tmp_path / "<b>face.png", tmp_path / "none.png")
    tab.wait("!document.getElementById('results').hidden")
    shown = tab.js("document.getElementById('results').innerText")
    assert "<b>face.png" in shown
    assert "Skipped none.png: not an image" in shown
    assert "Nearest training samples" in shown
    assert " to " in tab.js("document.querySelector('dd small').textContent")
    assert tab.js("document.activeElement.id") == "results-title"
    tab.wait("[...document.images].length === 6")
    tab.wait("[...document.images].every((one) => one.naturalWidth > 0)")
    choose(tab, tmp_path / "none.png")
    tab.wait("!document.getElementById('error').hidden")
    assert "not an image" in tab.js("document.getElementById('error').textContent")
    assert tab.js("document.getElementById('results').hidden"), "those of another photo"
    tab.js(f"""const bytes = Uint8Array.from({list(photo(80))}), drop = new DataTransfer();
      drop.items.add(new File([bytes], "dropped.png"));
      document.dispatchEvent(new DragEvent("drop", {{ dataTransfer: drop }}));""")
    tab.wait("document.getElementById('results').innerText.includes('dropped.png')")
    assert tab.js("document.getElementById('error').hidden")
    tab.js("""const chosen = document.getElementById("neighbours");
      chosen.value = "1"; chosen.focus(); chosen.dispatchEvent(new Event("change"));""")
    tab.wait("document.querySelectorAll('.seen li').length === 1")
    assert tab.js("document.activeElement.id") == "neighbours"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "<b>face.png").write_bytes(photo(20))
    choose(tab, tmp_path / "<b>face.png", tmp_path / "other" / "<b>face.png")
    tab.wait("document.getElementById('results').innerText.includes('<b>face (2).png')")
    sources = tab.js("[...document.querySelectorAll('img.photo')].map((one) => one.src)")
    assert len(set(sources)) == 2, "each photo beside its own prediction"
    tab.js("document.getElementById('theme').click()")
    assert tab.js("getComputedStyle(document.body).backgroundColor") != dark
    own = [one for one in tab.requests() if not one.startswith(("blob:", server.address))]
    assert own == []
    refused = [one for one in tab.complaints() if "422" not in json.dumps(one)]
    assert refused == []


def choose(tab: Tab, *files: Path) -> None:
    found = tab.call("Runtime.evaluate", expression="document.getElementById('files')")
    place = found["result"]["objectId"]
    tab.call("DOM.setFileInputFiles", files=[str(file) for file in files], objectId=place)


def test_ctrl_c_ends_it_cleanly(server: Server) -> None:
    assert server.stop() == 130
    assert server.text.splitlines()[-1] == "Stopped. The server has ended."
    assert "Traceback" not in server.text
