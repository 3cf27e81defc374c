"""rnc serve by the ASGI test client: answers, refusals and limits; requests reach no files."""

import io
import json
import struct
import threading
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from rnc.model import load
from rnc.run.predict import AskedIntervals, predict_run
from rnc.serve.app import Service, make_app
from rnc.serve.limits import ServeLimits
from rnc.serve.pictures import find_pictures
from rnc.serve.replies import ErrorReply, HealthReply, ModelReply, PredictReply
from rnc.serve.served import Question, ServedModel
from rnc.serve.server import hosts_of
from rnc.serve.worker import ModelWorker
from serve_cases import form, npz, photo, photo_run, signal_run, table_run

ROWS = [{"area": 100, "rooms": 3, "town": "north"}, {"area": None, "rooms": 2, "town": "west"}]
NEW = b"id,area,rooms,town\n007,100,3,north\n008,,2,west\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {"table": table_run(folder), "image": photo_run(folder), "signal": signal_run(folder)}


@cache
def served_run(run: Path) -> ServedModel:
    return ServedModel.load(run, device="cpu")


def client(run: Path, *, from_data: bool = False, **limits: Any) -> TestClient:
    served = served_run(run)
    pictures = find_pictures(served, from_data=from_data)
    app = make_app(Service(served, ServeLimits(**limits), pictures), hosts_of("127.0.0.1", ()))
    return TestClient(app, base_url="http://127.0.0.1:8000")


def answered(reply: Any) -> PredictReply:
    assert reply.status_code == 200, reply.text
    return PredictReply.model_validate(reply.json())


def refused(reply: Any, status: int, *words: str) -> str:
    assert reply.status_code == status, reply.text
    message = ErrorReply.model_validate(reply.json()).error.message
    assert all(word in message for word in words), message
    return message


def test_a_csv_has_the_predictions_of_rnc_predict(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_bytes(NEW)
    run = runs["table"]
    wanted = predict_run(run, tmp_path / "new.csv", explain=5, intervals=AskedIntervals(0.8)).frame
    with client(run) as web:
        said = answered(web.post("/predict?confidence=0.8", files=form(("new.csv", NEW))))
    assert said.confidence == 0.8
    assert [row.name for row in said.rows] == wanted["name"].tolist()
    assert [row.given for row in said.rows] == [{"id": "007"}, {"id": "008"}]
    assert [row.predictions["price"] for row in said.rows] == wanted["price"].tolist()
    ends = [row.intervals["price"] for row in said.rows if row.intervals is not None]
    assert ends == list(zip(wanted["price_lower"], wanted["price_upper"], strict=True))
    assert [row.out_of_range for row in said.rows] == wanted["out_of_range"].tolist()
    near = [row.neighbours[1] for row in said.rows if row.neighbours is not None]
    assert [one.name for one in near] == wanted["neighbour_2"].tolist()
    assert [one.distance for one in near] == wanted["neighbour_2_distance"].tolist()
    assert [one.targets["price"] for one in near] == wanted["neighbour_2_price"].tolist()


def test_rows_of_json_are_those_of_a_csv(runs: dict[str, Path]) -> None:
    with client(runs["table"]) as web:
        named = answered(web.post("/predict", json={"rows": ROWS}))
        listed = answered(web.post("/predict", json={"rows": [list(row.values()) for row in ROWS]}))
        sent = answered(web.post("/predict?neighbours=2", files=form(("new.csv", NEW))))
    predictions = [row.predictions for row in named.rows]
    assert predictions == [row.predictions for row in listed.rows]
    assert predictions == [row.predictions for row in sent.rows]
    assert [len(row.neighbours or []) for row in named.rows + sent.rows] == [5, 5, 2, 2]


def test_a_photo_has_the_prediction_of_its_file(runs: dict[str, Path], tmp_path: Path) -> None:
    photos = {"large.jpg": photo(90, size=(300, 200), kind="jpeg"), "b.png": photo(40)}
    for name, content in photos.items():
        (tmp_path / name).write_bytes(content)
    wanted = load(runs["image"]).predict([tmp_path / name for name in photos])
    with client(runs["image"], from_data=True) as web:
        reply = web.post("/predict?pictures=true", files=form(*photos.items(), ("c.png", b"no")))
        said = answered(reply)
    assert [row.name for row in said.rows] == list(photos)
    got = [row.predictions["age"] for row in said.rows]
    np.testing.assert_allclose(got, wanted[:, 0], rtol=1e-5)
    assert [(one.name, one.reason) for one in said.skipped] == [("c.png", "not an image")]
    near = [one for row in said.rows for one in row.neighbours or []]
    assert all((one.picture or "").startswith("data:image/png;base64,") for one in near)


def test_signals_come_as_npz_or_json(runs: dict[str, Path]) -> None:
    x = np.random.default_rng(3).normal(size=(2, 2, 50)).astype(np.float32)
    wanted = load(runs["signal"]).predict(x)
    with client(runs["signal"]) as web:
        sent = answered(web.post("/predict", files=form(("a.npz", npz(x=x, id=["p", "q"])))))
        rows = answered(web.post("/predict", json={"rows": x.tolist()}))
    for said in (sent, rows):
        got = [row.predictions["pulse"] for row in said.rows]
        np.testing.assert_allclose(got, wanted[:, 0], rtol=1e-5)
    assert [row.given for row in sent.rows] == [{"id": "p"}, {"id": "q"}]


def test_what_the_model_is_and_its_schema(runs: dict[str, Path]) -> None:
    with client(runs["table"]) as web:
        HealthReply.model_validate(web.get("/health").json())
        about = ModelReply.model_validate(web.get("/model").json())
        schema = web.get("/openapi.json").json()
        assert web.get("/docs").status_code == 404  # it would load scripts from another server
    assert about.columns is not None
    assert [column["name"] for column in about.columns] == ["area", "rooms", "town"]
    post = schema["paths"]["/predict"]["post"]
    assert set(post["requestBody"]["content"]) == {"multipart/form-data", "application/json"}
    assert {"200", "408", "413", "415", "422", "503"} <= set(post["responses"])
    assert "PredictReply" in json.dumps(post["responses"]["200"])


def bomb() -> bytes:
    """A PNG of 40,000 x 40,000 black pixels, by its header only."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("kind", "file", "status", "words"),
    [
        ("image", ("a.png", b"text"), 422, ("a.png: not an image",)),
        ("image", ("a.png", b""), 422, ("a.png: an empty file",)),
        (
            "image",
            ("a.png", photo()[:200]),
            422,
            ("No file of 1 is a photo", "a.png: cannot be used: "),
        ),
        ("image", ("bomb.png", bomb()), 413, ("megapixels",)),
        ("image", ("big.png", photo(size=(400, 400))), 413, ("0.16", "at most 0.1")),
        ("image", ("faces.csv", b"file\n/etc/passwd\n"), 422, ("opens no files",)),
        ("table", ("a.csv", b""), 422, ("a.csv is empty",)),
        ("table", ("a.csv", b"area,rooms\n1,2\n"), 422, ("town",)),
        ("table", ("a.csv", b"area,rooms,town\n1,2\n"), 422, ("row 2 has 2 fields",)),
        ("table", ("a.csv", b"area,rooms,town\nx,2,north\n"), 422, ("row 2", "'x'")),
        ("table", ("a.csv", b"\xff\xfe\x00\x80,\n"), 422, ("UTF-8",)),
        ("table", ("a.csv", b"a" * 200_000), 422, ("first row",)),
        ("table", ("a.csv", b"area,rooms,town\n" + b"1,2,north\n" * 150), 413, ("150", "100")),
        ("table", ("a.csv", b"a," * 900 + b"\n" + b"1\n" * 9000), 413, ("cells",)),
        ("table", ("a.xlsx", b"PK"), 422, ("CSV", "opens no files")),
        ("table", ("a.csv.gz", b"\x1f\x8b"), 422, ("CSV",)),
        ("table", ("a.npz", npz(x=np.zeros((200, 3)))), 413, ("200 rows",)),
        ("signal", ("a.npz", npz(x=np.zeros((9, 2, 90_000)))), 413, ("unpacked", "MiB")),
        (
            "signal",
            ("a.npz", npz(x=np.zeros((9, 2, 7)))),
            422,
            ("needs inputs of shape", "Give samples of 50 values."),
        ),
        ("signal", ("a.npz", npz(y=np.zeros(3))), 422, ("needs an array 'x'",)),
        ("signal", ("a.npz", b"PK\x03\x04"), 422, ("NPZ",)),
        ("signal", ("a.npz", b"PK\x01\x02" * 2000), 413, ("parts",)),
        ("signal", ("a.csv", b"a,b\n1,2\n"), 422, ("an .npz file",)),
    ],
)
def test_a_bad_file_is_refused_in_words(
    runs: dict[str, Path], kind: str, file: tuple[str, bytes], status: int, words: tuple[str, ...]
) -> None:
    with client(runs[kind], megabytes=1, megapixels=0.1, rows=100) as web:
        refused(web.post("/predict", files=form(file)), status, *words)
        assert web.get("/health").status_code == 200


def test_python_objects_are_never_unpacked(runs: dict[str, Path]) -> None:
    file = io.BytesIO()
    np.savez(file, x=np.array([{"a": 1}], dtype=object))
    with client(runs["signal"]) as web:
        words = ("Python objects", "could run code")
        refused(web.post("/predict", files=form(("a.npz", file.getvalue()))), 422, *words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"rows": []}', "not empty"),
        (b'{"rows": 3}', "a list"),
        (b'{"rows": [1, 2]}', "objects, or lists"),
        (b'{"rows": [{"area": 1}], "more": 1}', "one entry `rows`"),
        (b'{"rows": [{"area": NaN}]}', "NaN"),
        (b'{"rows": [{"area": 1, "area": 2}]}', "more than once"),
        (b'{"rows": [{"area": 1}]}', "rooms"),
        (b'{"rows": [{"area": [1], "rooms": 2, "town": "north"}]}', "area"),
        (b'{"rows": [[1, 2]]}', "3 columns"),
        (b'{"rows": [[1, 2, 3], [1]]}', "x"),
        (b'{"rows": [[' + b"9" * 5000 + b"]]}", "no JSON"),
        (b'{"rows": [[' + b"9" * 400 + b', 2, "north"]]}', "area is inf"),
        (b'{"rows": [{"area": -' + b"9" * 400 + b', "rooms": 2, "town": "x"}]}', "area is -inf"),
        (b'{"rows": [{"area": 1, "rooms": 2, "town": "\\ud800"}]}', "surrogates"),
        (b'{"rows": [{"area": 1, "rooms": 2, "town": "", "\\uDC00": 1}]}', "surrogates"),
        (b'{"rows": [{"area": 1, "rooms": 2, "town": "\xed\xa0\x80"}]}', "no JSON"),
    ],
)
def test_bad_json_is_refused_in_words(runs: dict[str, Path], body: bytes, words: str) -> None:
    with client(runs["table"]) as web:
        headers = {"content-type": "application/json"}
        refused(web.post("/predict", content=body, headers=headers), 422, words)


def test_json_that_would_fill_the_memory_is_refused(runs: dict[str, Path]) -> None:
    rows = [{"area": 1, "rooms": 2, "town": "north", f"c{i}": 1} for i in range(900)]
    with client(runs["table"], megabytes=0.2) as web:
        refused(web.post("/predict", json={"rows": rows}), 413, "812,700", "cells")


def test_a_table_of_very_many_columns_is_refused_before_it_is_read(runs: dict[str, Path]) -> None:
    names = ["area", "rooms", "town", *(f"c{i}" for i in range(1000))]
    text = ",".join(names) + "\n" + ",".join(["1"] * len(names))
    with client(runs["table"]) as web:
        refused(web.post("/predict", files=form(("a.csv", text.encode()))), 413, "1,003 columns")
        row = dict.fromkeys(names, 1)
        refused(web.post("/predict", json={"rows": [row]}), 413, "1,003 columns", "at most 1,000")


def test_rows_with_names_are_no_way_to_files(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(photo())
    with client(runs["image"]) as web:
        reply = web.post("/predict", json={"rows": [{"file": str(tmp_path / "a.png")}]})
        refused(reply, 422, "rows with names are for tables", "photos")


def test_limits_of_a_request(runs: dict[str, Path]) -> None:
    with client(runs["image"], megabytes=0.01, files=2) as web:
        refused(web.post("/predict", files=form(("a.png", b"a" * 20_000))), 413, "0.01")
        chunks = iter([b"a" * 8000] * 3)  # without a length in the header
        headers = {"content-type": "application/json"}
        refused(web.post("/predict", content=chunks, headers=headers), 413, "or more")
        refused(web.post("/predict", files=form(*[("a.png", b"a")] * 3)), 413, "files")
        refused(web.post("/predict", files=form(*[("a.png", b"a")] * 9)), 413, "files or more")
        refused(web.post("/predict", content=b"a"), 415, "multipart/form-data")
        headers = {"content-type": "multipart/form-data"}
        refused(web.post("/predict", content=b"a", headers=headers), 422, "boundary")
        refused(web.post("/predict", files={"": b""}), 422)
        refused(web.post("/predict", data={"x": "1"}, files={}), 415)
        refused(
            web.post("/predict?confidence=2", files=form(("a.png", photo()))), 422, "confidence"
        )
        refused(web.post("/predict?confidence=0.99", files=form(("a.png", photo()))), 422, "rows")
        refused(web.get("/predict"), 405)
        refused(web.get("/etc/passwd"), 404)
        refused(web.get("/health", headers={"host": "evil.example"}), 400, "evil.example")


def test_one_request_too_many_is_told_to_come_back(runs: dict[str, Path]) -> None:
    with client(runs["table"], requests=1) as web:
        web.app.state.service.busy = 1
        reply = web.post("/predict", json={"rows": ROWS})
        refused(reply, 503, "Try again")
        assert reply.headers["retry-after"] == "1"
        web.app.state.service.busy = 0
        answered(web.post("/predict", json={"rows": ROWS}))
        assert web.app.state.service.busy == 0


def test_a_request_that_does_not_arrive_is_let_go(runs: dict[str, Path]) -> None:
    async def receive() -> dict[str, Any]:
        await anyio.sleep(30)
        raise AssertionError("nobody waits so long")

    async def post() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b""}
        await client(runs["table"], seconds=0.05).app(scope | {"headers": headers}, receive, send)
        return sent

    start, body = anyio.run(post)
    assert start["status"] == 408
    assert "0.05 seconds" in json.loads(body["body"])["error"]["message"]


def test_a_run_without_intervals_and_neighbours_says_so(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((runs["table"] / name).read_bytes())
    with client(tmp_path) as web:
        said = answered(web.post("/predict", json={"rows": ROWS}))
        assert (said.confidence, said.rows[0].intervals, said.rows[0].neighbours) == (None,) * 3
        assert "no intervals" in said.notes[0]
        refused(web.post("/predict?confidence=0.9", json={"rows": ROWS}), 422, "calibration")


def test_questions_that_wait_share_a_call(runs: dict[str, Path]) -> None:
    served = ServedModel.load(runs["table"], device="cpu")
    x = served.reader.frame(pd.DataFrame(ROWS)).x
    calls: list[int] = []
    alone, answer = served.answer([Question(x[:1], 0.9)])[0], served.answer

    def counted(questions: Any) -> Any:
        calls.append(len(questions))
        if any(len(one.x) == 2 for one in questions):
            raise RuntimeError("no")
        return answer(questions)

    served.answer = counted  # type: ignore[method-assign]
    worker = ModelWorker(served, batch_rows=3)
    sizes = [1, 1, 1, 1, 2]
    jobs = [worker.put(Question(x[:size], 0.9)) for size in sizes]
    worker.start()
    said = [job.result(30) for job in jobs[:4]]
    assert all(one.predictions.tolist() == alone.predictions.tolist() for one in said)
    with pytest.raises(RuntimeError, match="no"):
        jobs[4].result(30)
    worker.stop()
    assert calls == [3, 2, 1, 1]  # the last one fails with another, which is asked again alone
    assert "rnc-model" not in [thread.name for thread in threading.enumerate()]
