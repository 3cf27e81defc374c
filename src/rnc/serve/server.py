"""Binds a port, and runs the application until Ctrl-C."""

import errno
import socket
from collections.abc import Callable, Sequence

import uvicorn
from fastapi import FastAPI

LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine that nobody else can call it by."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; the error says what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        advice = "Choose another with --port, or 0 for a free one." if taken else "Check --host."
        raise ValueError(
            f"The server cannot listen at {host}:{port} ({error}). {advice}"
        ) from error
    return bound


def hosts_of(host: str, allowed: Sequence[str]) -> tuple[str, ...] | None:
    """The names that requests may call the server by; None, any, if it listens everywhere.

    >>> hosts_of("127.0.0.1", [])
    ('127.0.0.1', 'localhost', '[::1]')
    >>> hosts_of("0.0.0.0", []) is None, hosts_of("0.0.0.0", ["Ages.Example"])[-1]
    (True, 'ages.example')
    """
    if host in ("0.0.0.0", "::") and not allowed:
        return None
    own = () if host in (*LOCAL, "0.0.0.0", "::") else (f"[{host}]" if ":" in host else host,)
    return (*LOCAL, *own, *(name.lower() for name in allowed))


def address_of(bound: socket.socket) -> str:
    """The address to open in a browser."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def run_app(app: FastAPI, bound: socket.socket, say: Callable[[str], None], *, log: bool) -> None:
    """Answer requests until Ctrl-C, or SIGTERM; those that are being answered are finished."""
    config = uvicorn.Config(
        app,
        log_level="info" if log else "warning",
        access_log=log,
        timeout_graceful_shutdown=5,
        server_header=False,
        h11_max_incomplete_event_size=64 * 1024,
    )
    with bound:
        say(f"Open {address_of(bound)} in a browser; POST {address_of(bound)}/predict for JSON.")
        uvicorn.Server(config).run(sockets=[bound])
