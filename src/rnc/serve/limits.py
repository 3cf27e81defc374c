"""What one request may cost, and how one that would cost more is refused."""

from dataclasses import dataclass, fields

_JSON_MEGABYTES = 8.0
"""Most of a JSON body: Python objects take up to 30 times the memory of their text."""


@dataclass(frozen=True)
class ServeLimits:
    """Limits of one request; `rnc serve --help` says the same words."""

    megabytes: float = 32.0
    """Of the body of a request, and of the arrays in an .npz file when they are unpacked."""
    files: int = 64
    """Uploaded files."""
    rows: int = 10_000
    """Rows of a table or an array, of all files together."""
    megapixels: float = 50.0
    """Of one photo."""
    requests: int = 32
    """Requests to predict at a time; one more is told to come back later."""
    seconds: float = 60.0
    """For a request to arrive."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < float("inf"):
                raise ValueError(f"The limit {field.name} must be above 0; got {value:g}.")

    @property
    def body_bytes(self) -> int:
        """Of the body of a request."""
        return int(self.megabytes * 2**20)

    @property
    def json_bytes(self) -> int:
        """Of a body of JSON."""
        return int(min(self.megabytes, _JSON_MEGABYTES) * 2**20)

    @property
    def pixels(self) -> int:
        """Of one photo."""
        return int(self.megapixels * 1e6)

    @property
    def cells(self) -> int:
        """Of a table in memory, 8 bytes each."""
        return 4 * self.body_bytes // 8


class Refused(Exception):
    """A request that is not answered: a status of HTTP, a code for programs, and words."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def too_large(what: str, got: float, limit: float, unit: str) -> Refused:
    """The refusal of something beyond a limit.

    >>> too_large("The photo", 81.2, 50, "megapixels").message
    'The photo has 81.2 megapixels; this server takes at most 50. Send less, or smaller ones.'
    """
    shown = [f"{n:,}" if isinstance(n, int) else f"{n:.4g}" for n in (got, limit)]
    words = f"{what} has {shown[0]} {unit}; this server takes at most {shown[1]}."
    return Refused(413, "too_large", f"{words} Send less, or smaller ones.")


def invalid(message: str) -> Refused:
    """The refusal of content that cannot be used."""
    return Refused(422, "invalid", message)
