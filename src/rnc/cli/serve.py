"""The command that serves a run: a page and a JSON endpoint."""

from typing import Annotated

import typer

from rnc.cli.flags import Run
from rnc.cli.terminal import friendly, tell


def serve(
    run: Run,
    host: Annotated[
        str, "address to listen on; 0.0.0.0: every network that this machine is in"
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port to listen on; 0: any free port")
    ] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="host name of the server that requests may use, beside its address; may repeat",
        ),
    ] = None,
    neighbours: Annotated[int, "show this many nearest training samples per prediction"] = 5,
    pictures: Annotated[bool, "show pictures of these samples, from the data of the run"] = False,
    device: Annotated[str | None, "cpu or cuda; default: a GPU if there is one"] = None,
    max_mb: Annotated[float, "limit of a request in MiB"] = 32.0,
    max_files: Annotated[int, "limit of files per request"] = 64,
    max_rows: Annotated[int, "limit of rows per request"] = 10_000,
    max_megapixels: Annotated[float, "limit of a photo in megapixels"] = 50.0,
    max_requests: Annotated[int, "limit of requests at the same time"] = 32,
    batch_rows: Annotated[
        int, "requests that arrive together share a call of the model, up to this many rows"
    ] = 256,
    log: Annotated[bool, "print a line for every request"] = False,
) -> None:
    """Serve a finished run: a page to drop files on, and a JSON endpoint (extra: serve).

    For instance:

        rnc serve runs/age

        curl -F files=@face.jpg 'http://127.0.0.1:8000/predict?confidence=0.9'

    The page shows predictions with intervals and the nearest training samples. GET /model describes
    the inputs that the run takes, and /openapi.json is the schema. There is no login: whoever
    reaches the port can predict, and sees names of training samples. Uploads stay in memory and are
    not stored. If they contain paths, no such file is opened.
    """
    with friendly("The server has ended."):
        try:
            from rnc.serve.app import Service, make_app
            from rnc.serve.server import LOCAL, bind, hosts_of, run_app
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette"):
                raise
            raise ImportError(
                "rnc serve needs the packages fastapi, uvicorn and python-multipart: "
                "pip install 'rank-n-contrast[serve]'."
            ) from error
        from rnc.serve.limits import ServeLimits
        from rnc.serve.pictures import find_pictures
        from rnc.serve.served import ServedModel

        limits = ServeLimits(max_mb, max_files, max_rows, max_megapixels, max_requests)
        bound = bind(host, port)
        served = ServedModel.load(run, device=device, neighbours=neighbours)
        found = find_pictures(served, from_data=pictures)
        service = Service(served, limits, found, batch_rows)
        app = make_app(service, hosts_of(host, allow_host or ()))
        if host not in LOCAL:
            tell("Anyone who reaches this machine can use it: there is no login.", style="yellow")
        run_app(app, bound, tell, log=log)
