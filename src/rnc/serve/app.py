"""The ASGI application: a page, a JSON endpoint with a schema, limits, and errors as JSON.

No reply needs another server, so the interactive documentation of FastAPI, which loads scripts from
one, is off; /openapi.json is the schema.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import rnc
from rnc.data.errors import DataError
from rnc.data.images import reader_threads
from rnc.data.in_memory import NamedBytes
from rnc.data.inputs import Inputs
from rnc.printable import on_one_line
from rnc.serve.limits import Refused, ServeLimits, invalid, too_large
from rnc.serve.page import POLICY, page_of
from rnc.serve.pictures import NeighbourPictures
from rnc.serve.replies import (
    ErrorReply,
    HealthReply,
    ModelReply,
    PredictReply,
    model_reply,
    predict_reply,
)
from rnc.serve.served import Question, ServedModel
from rnc.serve.uploads import UploadReader
from rnc.serve.worker import BATCH_ROWS, ModelWorker

Made = TypeVar("Made")

_NAME_LENGTH = 200
_REFUSALS: dict[int | str, dict[str, Any]] = {
    408: {"model": ErrorReply, "description": "the request took too long to arrive"},
    413: {"model": ErrorReply, "description": "beyond a limit of size or number"},
    415: {"model": ErrorReply, "description": "neither a form with files nor JSON"},
    422: {"model": ErrorReply, "description": "content that cannot be used; the message says why"},
    503: {"model": ErrorReply, "description": "too many requests at a time"},
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}}
                    },
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["rows"],
                    "additionalProperties": False,
                    "properties": {"rows": {"type": "array", "minItems": 1, "items": {}}},
                }
            },
        },
    }
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(eq=False)
class Service:
    """What answers requests: the model, its worker, the limits, and how many requests there are."""

    served: ServedModel
    limits: ServeLimits = field(default_factory=ServeLimits)
    pictures: NeighbourPictures | None = None
    batch_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        self.uploads = UploadReader(self.served.reader, self.limits)
        self.worker = ModelWorker(self.served, self.batch_rows)
        self.readers = anyio.CapacityLimiter(reader_threads())
        self.model = model_reply(self.served, self.uploads.wanted, self.limits)
        self.page = page_of(self.model)
        self.busy = 0

    async def predict(
        self, request: Request, confidence: float | None, neighbours: int | None, pictures: bool
    ) -> Response:
        """The reply to POST /predict."""
        if self.busy >= self.limits.requests:
            raise Refused(
                503,
                "busy",
                f"{self.busy} requests are being answered, which is the limit. Try again in a "
                "second.",
            )
        self.busy += 1
        try:
            return await self._predict(request, confidence, neighbours, pictures)
        finally:
            self.busy -= 1

    async def _predict(
        self, request: Request, confidence: float | None, neighbours: int | None, pictures: bool
    ) -> Response:
        chosen, notes = self._confidence(confidence)
        read = await self._received(request)
        inputs = await self._in_thread(lambda: self._prepared(read))
        said = await self.worker.ask(Question(inputs.x, chosen))
        count = self.served.neighbours if neighbours is None else neighbours
        shown = self.pictures if pictures else None
        content = await self._in_thread(
            lambda: _as_json(predict_reply(self.served, inputs, said, chosen, notes, count, shown))
        )
        return Response(content, media_type="application/json")

    def _confidence(self, asked: float | None) -> tuple[float | None, tuple[str, ...]]:
        """The confidence of the intervals: as asked, or the first that is possible."""
        possible = self.served.confidences
        chosen = asked if asked is not None else (possible[0] if possible else None)
        if chosen is None:
            return None, ("This run has no intervals: it kept no rows to calibrate them on.",)
        try:
            return chosen, self.served.check_confidence(chosen)
        except ValueError as error:
            raise invalid(str(error)) from error

    async def _in_thread(self, make: Callable[[], Made]) -> Made:
        return await anyio.to_thread.run_sync(make, limiter=self.readers)

    async def _received(self, request: Request) -> Callable[[], Inputs]:
        """What reads the rows of a request, which has arrived as a whole."""
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind not in ("multipart/form-data", "application/json"):
            raise Refused(
                415,
                "unsupported",
                f"Send a form (multipart/form-data) with files, or JSON (application/json) with "
                f"rows; got {on_one_line(kind)[:80]!r}.",
            )
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await _body_of(request, self.limits.body_bytes)
        except TimeoutError as error:
            raise Refused(
                408, "slow", f"The request did not arrive within {self.limits.seconds:g} seconds."
            ) from error
        if kind == "application/json":
            return lambda: self.uploads.rows(body)
        files = await _files_of(request, body, self.limits)
        return lambda: self.uploads.files(files)

    def _prepared(self, read: Callable[[], Inputs]) -> Inputs:
        try:
            inputs = read()
            self.served.model.check_shape(inputs)
        except DataError as error:
            raise invalid(str(error)) from error
        except MemoryError as error:
            raise Refused(413, "too_large", "The data do not fit into memory.") from error
        return inputs


async def _body_of(request: Request, limit: int) -> bytes:
    """The body of a request; refused as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > limit:
        raise too_large("The request", int(declared) / 2**20, limit / 2**20, "MiB")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise too_large("The request", len(body) / 2**20, limit / 2**20, "MiB or more")
    return bytes(body)


async def _files_of(request: Request, body: bytes, limits: ServeLimits) -> list[NamedBytes]:
    """The files of a form. They stay in memory: nothing is written to a temporary file."""

    async def stream() -> AsyncIterator[bytes]:
        yield body

    parser = MultiPartParser(
        request.headers,
        stream(),  # type: ignore[arg-type]  # it reads it, and no more
        max_files=limits.files + 1,
        max_fields=10,
        max_part_size=4096,
    )
    parser.spool_max_size = limits.body_bytes + 1
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise too_large("The form", limits.files + 1, limits.files, "files or more") from error
        raise invalid(f"The form cannot be read ({error.message}).") from error
    except (ValueError, UnicodeError) as error:
        raise invalid(f"The form cannot be read ({error}).") from error
    uploads = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    files = []
    for i, upload in enumerate(uploads, 1):
        name = on_one_line(upload.filename or "")[:_NAME_LENGTH] or f"file {i}"
        files.append(NamedBytes(name, await upload.read()))
    await form.close()
    return files


def _as_json(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def make_app(service: Service, hosts: Sequence[str] | None = None) -> FastAPI:
    """The application; `hosts` are the names that requests may call it by, None: any."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        await anyio.to_thread.run_sync(service.worker.stop)

    app = FastAPI(
        title=f"rnc serve: {service.model['name']}",
        description="Predictions of a run of rank-n-contrast, with intervals and neighbours.",
        version=rnc.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    _add_routes(app, service)
    _add_errors(app)
    app.add_middleware(_Gate, hosts=hosts)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(service.page, headers={"Content-Security-Policy": POLICY})

    @app.get("/health", response_model=HealthReply)
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok", "version": rnc.__version__}

    @app.get("/model", response_model=ModelReply)
    async def model() -> JSONResponse:
        """What the run is, what it takes and what it answers."""
        return JSONResponse(service.model)

    @app.post("/predict", responses=_REFUSALS, response_model=PredictReply, openapi_extra=_BODY)
    async def predict(
        request: Request,
        confidence: Annotated[
            float | None,
            Query(gt=0, lt=1, description="share of targets that intervals hold; as 0.9"),
        ] = None,
        neighbours: Annotated[
            int | None, Query(ge=0, le=1000, description="nearest training samples of each row")
        ] = None,
        pictures: Annotated[bool, Query(description="pictures of these, where there are")] = False,
    ) -> Response:
        """Predict files of a form (photos, CSV, .npz), or rows of JSON."""
        return await service.predict(request, confidence, neighbours, pictures)


def _error_reply(status: int, code: str, message: str, **headers: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        headers = {"Retry-After": "1"} if error.status == 503 else {}
        return _error_reply(error.status, error.code, error.message, **headers)

    @app.exception_handler(RequestValidationError)
    async def wrong_query(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return _error_reply(422, "invalid", f"{first['loc'][-1]}: {first['msg']}.")

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
        return _error_reply(error.status_code, code, str(error.detail), **(error.headers or {}))

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        return _error_reply(499, "gone", "The client has gone.")  # nobody reads it

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> JSONResponse:
        return _error_reply(500, "fault", "The server could not answer; its log says why.")


class _Gate:
    """Refuses requests for other hosts, and adds headers to every reply.

    A page of the internet may make a browser ask a server on its own machine by another name; such
    a request is not answered.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] | None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        if self.hosts is not None and name.lower() not in self.hosts:
            words = f"This server is not called {on_one_line(host)[:80]!r}. See --allow-host."
            refusal = _error_reply(400, "wrong_host", words)
            await refusal(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)
