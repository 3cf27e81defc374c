"""Throughput and latency of `rnc serve`, and its answers to 1,000 good and bad requests.

Runs are untrained, since only their size matters. Clients are threads of this process, so on a
machine with few cores they slow the server down. --calls measures the processor time of a request
in calls of the model: alone, and with 16 requests in one call, as the server answers requests that
wait at the same time.

OMP_NUM_THREADS=1 python benchmarks/serve.py --out benchmarks/results/serve.csv
OMP_NUM_THREADS=1 python benchmarks/serve.py --calls --out benchmarks/results/serve_calls.csv
"""

import argparse
import dataclasses
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from results_file import append_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # has runs and requests
from rnc.data import table_from_arrays
from rnc.serve.served import Question, ServedModel
from serve_cases import FAST, born, photo, photo_run, signal_run, table_run
from serve_load import Sent, Server, mixed, rows, upload

ROW = b'{"rows": [{"area": 90, "rooms": 3, "town": "west"}]}'
REQUESTS = {
    "table": rows(ROW, is_good=True),
    "image": upload(("face.jpg", photo(90, size=(480, 640), kind="jpeg"))),
}


def timed(server: Server, requests: Sequence[Sent], clients: int) -> tuple[list[int], list[float]]:
    """The status and the seconds of each request."""

    def one(sent: Sent) -> tuple[int, float]:
        began = time.perf_counter()
        status, _ = server.send(sent)
        return status, time.perf_counter() - began

    with ThreadPoolExecutor(clients) as pool:
        replies = list(pool.map(one, requests))
    return [status for status, _ in replies], [seconds for _, seconds in replies]


def row_of(kind: str, what: str, clients: int, server: Server, requests: Sequence[Sent]) -> dict:
    """A row of results for some requests."""
    memory, began = server.megabytes, time.perf_counter()
    statuses, seconds = timed(server, requests, clients)
    taken = time.perf_counter() - began
    median, last = np.quantile(seconds, [0.5, 0.99])
    expected = [200 if sent.is_good else 0 for sent in requests]
    return {
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores, shared",
        "run": kind,
        "requests": f"{len(requests)} {what}",
        "clients": clients,
        "per second": f"{len(requests) / taken:.1f}",
        "p50 ms": f"{1000 * median:.1f}",
        "p99 ms": f"{1000 * last:.1f}",
        "answered": sum(status == 200 for status in statuses),
        "refused": sum(400 <= status < 500 for status in statuses),
        "not as expected": sum(
            (status == 200) != (wanted == 200) or status >= 500
            for status, wanted in zip(statuses, expected, strict=True)
        ),
        "tracebacks": server.text.count("Traceback"),
        "files written": len(server.touched),
        "MB before": f"{memory:.0f}",
        "MB after": f"{server.megabytes:.0f}",
    }


def measure(kind: str, run: Path, folder: Path, count: int, mix: int) -> list[dict]:
    """All rows of results for a kind of run."""
    place, good = folder / f"{kind}-server", REQUESTS[kind]
    place.mkdir()
    server = Server(run, place)
    timed(server, [good] * 20, 4)  # warm
    timed(server, mixed(kind, 100, seed=1), 8)  # memory settles
    found = [row_of(kind, "of one row", n, server, [good] * count) for n in (1, 16)]
    found.append(row_of(kind, "mixed", 8, server, mixed(kind, mix)))
    server.stop()
    return found


def calls(folder: Path) -> list[dict]:
    """Processor time of one request, alone and together with 15 others."""
    runs = {"table, mlp": table_run(folder), "signals 2 x 50, resnet1d10": signal_run(folder)}
    for encoder, side in (("small-cnn", 64), ("resnet18", 96)):
        x = np.random.default_rng(0).integers(0, 256, (60, 3, side, side)).astype(np.uint8)
        table = table_from_arrays(x, x.mean(axis=(1, 2, 3)), target_names=["light"])
        config = dataclasses.replace(FAST, encoder=encoder, image_size=side)
        runs[f"images {side} x {side}, {encoder}"] = born(folder / encoder, table, config)
    found = []
    for name, run in runs.items():
        served = ServedModel.load(run, device="cpu")
        dtype = np.uint8 if served.config.kind == "image" else np.float32
        shape = (2, 50) if served.config.kind == "signal" else served.config.input_shape
        question = Question(np.zeros((1, *shape), dtype), served.confidences[0])
        alone, shared = (_cost(served, [question] * n) for n in (1, 16))
        found.append(
            {
                "hardware": f"{platform.machine()}, 1 thread",
                "run": name,
                "ms of a request alone": f"{alone:.2f}",
                "ms of one of 16 in a call": f"{shared:.2f}",
                "ratio": f"{alone / shared:.1f}",
            }
        )
    return found


def _cost(served: ServedModel, questions: list[Question], seconds: float = 2.0) -> float:
    """Processor time per question, in milliseconds."""
    served.answer(questions)
    began, times = time.process_time(), 0
    while time.process_time() - began < seconds:
        served.answer(questions)
        times += len(questions)
    return 1000 * (time.process_time() - began) / times


def main() -> None:
    """Print rows, and write them as CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=300, help="requests of one row")
    parser.add_argument("--mixed", type=int, default=1000, help="good and bad requests")
    parser.add_argument("--calls", action="store_true", help="calls of the model only")
    parser.add_argument("--out", type=Path, help="CSV file to append to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.calls:
            lines = calls(folder)
            print(*lines, sep="\n")
            append_rows(args.out, lines)
            return
        for kind, run in (("table", table_run(folder)), ("image", photo_run(folder))):
            lines = measure(kind, run, folder, args.count, args.mixed)
            for line in lines:
                print(*(f"{title}: {value}" for title, value in line.items()), sep="; ")
            append_rows(args.out, lines)


if __name__ == "__main__":
    main()
