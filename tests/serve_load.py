"""Start a real `rnc serve`, record which files it writes, and send requests of all sorts."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from serve_cases import npz, photo

# The server, with a line for every file that it opens to write, or by a name that was uploaded.
WATCHED = """
import os, sys, tempfile
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
changes = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
def watch(event, args):
    if event == "open":
        path, flags = str(args[0]), args[2] or 0
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or "sealed" in path:
            os.write(log, f"{event} {path}\\n".encode(errors="replace"))
    elif event in changes:
        os.write(log, f"{event} {args[0]}\\n".encode(errors="replace"))
sys.addaudithook(watch)
from rnc.cli import main
main()
"""


class Sent(NamedTuple):
    """A request, and whether it is good."""

    path: str
    headers: dict[str, str]
    body: bytes
    is_good: bool
    method: str = "POST"


class Server:
    """A server of a run, watched; `folder` takes its logs."""

    def __init__(self, run: Path, folder: Path, *flags: str) -> None:
        self.files, self.log = folder / "files.log", folder / "server.log"
        self.place = folder / "cwd"
        self.place.mkdir()
        command = [sys.executable, "-B", "-c", WATCHED, str(self.files), "serve"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, str(run.resolve()), "--port", "0", *flags],
                stdout=log,
                stderr=log,
                cwd=self.place,
                env=os.environ | {"COLUMNS": "300"},
            )
        self.address = self._wait()
        self.host, port = self.address.removeprefix("http://").split(":")
        self.port = int(port)
        self.before = len(self.files.read_text().splitlines())

    def _wait(self, seconds: float = 120) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"Open (http://\S+) in", self.text):
                host, port = found[1].removeprefix("http://").split(":")
                try:
                    self.send(Sent("/health", {}, b"", True, "GET"), host, int(port))
                except OSError:
                    pass
                else:
                    return found[1]
            time.sleep(0.1)
        raise AssertionError(f"The server did not start: {self.text}")

    @property
    def text(self) -> str:
        """What it has said."""
        return self.log.read_text(errors="replace")

    @property
    def touched(self) -> list[str]:
        """Files that it wrote, changed, or opened by a name in an upload, since it answers."""
        return self.files.read_text().splitlines()[self.before :]

    @property
    def megabytes(self) -> float:
        """Its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def send(self, sent: Sent, host: str = "", port: int = 0) -> tuple[int, bytes]:
        """The status and the body of a reply."""
        line = http.client.HTTPConnection(host or self.host, port or self.port, timeout=60)
        try:
            line.request(sent.method, sent.path, sent.body or None, sent.headers)
            reply = line.getresponse()
            return reply.status, reply.read()
        finally:
            line.close()

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def upload(*files: tuple[str, bytes], path: str = "/predict", is_good: bool = True) -> Sent:
    """A form with files."""
    body = b"".join(
        b'--X\r\nContent-Disposition: form-data; name="files"; filename="%b"\r\n\r\n%b\r\n'
        % (name.encode(), content)
        for name, content in files
    )
    headers = {"Content-Type": "multipart/form-data; boundary=X"}
    return Sent(path, headers, body + b"--X--\r\n", is_good)


def rows(content: bytes, *, is_good: bool = False) -> Sent:
    """A body of JSON."""
    return Sent("/predict", {"Content-Type": "application/json"}, content, is_good)


def mixed(kind: str, count: int, seed: int = 0) -> list[Sent]:
    """Requests to a run of this kind, about half of them bad, in a random order."""
    rng = np.random.default_rng(seed)
    choices = [*_good(kind, rng), *_bad(kind, rng)]
    return [choices[i] for i in rng.integers(len(choices), size=count)]


def _good(kind: str, rng: np.random.Generator) -> list[Sent]:
    if kind == "image":
        photos = [(f"{i}.jpg", photo(i, seed=i, size=(200, 150), kind="jpeg")) for i in range(8)]
        one = [upload(file, path="/predict?pictures=true") for file in photos]
        return [*one, upload(*photos), upload(photos[0], ("bad.png", b"no")), _get("/health")]
    lines = [
        f"{a:.1f},{r},north" for a, r in zip(rng.uniform(50, 200, 300), range(300), strict=True)
    ]
    tables = [("\n".join(["area,rooms,town", *lines[:n]])).encode() for n in (1, 10, 300)]
    row = {"area": 90, "rooms": 3, "town": "west"}
    x = npz(x=np.array([["80", "2", "north"]]))
    good = [upload(("new.csv", table), path="/predict?confidence=0.8") for table in tables]
    good += [rows(json.dumps({"rows": [row] * n}).encode(), is_good=True) for n in (1, 1, 20)]
    return [*good, upload(("new.npz", x)), _get("/model"), _get("/"), _get("/openapi.json")]


def _get(path: str, *, is_good: bool = True) -> Sent:
    return Sent(path, {}, b"", is_good, "GET")


def _bad(kind: str, rng: np.random.Generator) -> list[Sent]:
    noise = rng.bytes(50_000)
    files = [
        ("../../sealed.png", noise),
        ("/etc/sealed", b""),
        ("a.png", photo()[:300]),
        ("a.npz", b"PK\x03\x04" + noise),
        ("a.npz", npz(x=np.zeros((20_000, 3)))),
        ("a.csv", b"file\n/etc/sealed\n../sealed.png\n"),
        ("a.csv", b"area,rooms,town\n1\n"),
        ("a.csv", noise),
        ("a.xlsx", b"PK" + noise),
        ("\x1b[2J.exe", noise),
    ]
    form = {"Content-Type": "multipart/form-data; boundary=X"}
    whole = upload(("a.png", noise)).body
    return [
        *(upload(file, is_good=False) for file in files),
        upload(*[("a.png", b"x")] * 70, is_good=False),
        rows(b"[" * 50_000),
        rows(b'{"rows": [{"file": "/etc/sealed"}]}'),
        rows(b'{"rows": [[1e999, 2, 3]]}' if kind == "image" else b'{"rows": [[NaN]]}'),
        rows(b""),
        Sent("/predict", form, whole[:1000], is_good=False),  # cut off
        Sent("/predict", form | {"Content-Length": str(10**9)}, b"", is_good=False),
        Sent("/predict", {"Content-Type": "text/plain"}, noise, is_good=False),
        Sent("/predict?confidence=nan", form, whole, is_good=False),
        _get("/../../etc/sealed", is_good=False),
        _get("/predict", is_good=False),
    ]
