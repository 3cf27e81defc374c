"""Drive a real Chromium without a window, to see what a reader of a page sees.

The DevTools protocol is JSON between zero bytes. No package is needed, nothing is downloaded.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WHY_NOT = "needs chromium: apt-get install chromium"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--remote-debugging-pipe", "--force-color-profile=srgb"),
)
# Chromium expects the pipes as files 3 and 4; copies above 9 keep one from landing on the other.
START = """
import fcntl, os, sys
down, up = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(down, 3)
os.dup2(up, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One Chromium, which opens tabs."""

    def __init__(self, profile):
        down, self.up = os.pipe()
        self.down, up = os.pipe()
        args = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        args = [sys.executable, "-c", START, str(down), str(up), *args]
        self.process = subprocess.Popen(
            args, pass_fds=(down, up), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(down)
        os.close(up)
        self.number, self.rest, self.tabs = 0, b"", {}

    def call(self, method, session=None, **options):
        self.number += 1
        message = {"id": self.number, "method": method, "params": options}
        if session:
            message["sessionId"] = session
        os.write(self.up, json.dumps(message).encode() + b"\0")
        wanted = self.number
        while True:
            answer = self.read(60)
            if answer.get("id") == wanted:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def read(self, seconds):
        """The next message; events go to their tab as well."""
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.down], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium did not answer within {seconds} seconds.")
            chunk = os.read(self.down, 1 << 20)
            if not chunk:
                raise ConnectionError("Chromium has ended.")
            self.rest += chunk
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message and message.get("sessionId") in self.tabs:
            self.tabs[message["sessionId"]].events.append(message)
        return message

    def open(self, path, *, width=1280, height=900, dark=False, phone=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self.tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.resize(width, height, phone=phone)
        tab.prefer("dark" if dark else "light")
        tab.events.clear()
        address = path if isinstance(path, str) else path.resolve().as_uri()
        tab.call("Page.navigate", url=address)
        tab.wait("document.readyState === 'complete'")
        return tab

    def close(self):
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self.process.kill()
        self.process.wait(30)
        os.close(self.up)
        os.close(self.down)


class Tab:
    """A page in the browser."""

    def __init__(self, browser, session):
        self.browser, self.session, self.events = browser, session, []

    def call(self, method, **options):
        return self.browser.call(method, self.session, **options)

    def js(self, expression):
        """The value of an expression, of JSON types."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < end, f"{expression} did not become true"
            time.sleep(0.02)

    def settle(self):
        """Wait until a change is drawn."""
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def resize(self, width, height, *, phone=False):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def prefer(self, theme):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
        self.settle()

    def screenshot(self, path, clip=None):
        """A picture of the window, or of a part of the page, whose parts that float may move."""
        options = {"captureBeyondViewport": True, "clip": clip | {"scale": 1}} if clip else {}
        answer = self.call("Page.captureScreenshot", format="png", **options)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self):
        """Everything that went wrong: errors, refused scripts, messages of the console."""
        self.js("0")  # what came before this has been read
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in kinds]

    def requests(self):
        """Addresses that the page asked for, besides pictures that it holds itself."""
        self.js("0")
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        addresses = [event["params"]["request"]["url"] for event in sent]
        return [address for address in addresses if not address.startswith("data:")]
