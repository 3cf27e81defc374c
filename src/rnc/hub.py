"""Runs on the Hugging Face Hub (extra: hub): `hf://owner/name` or `hf://owner/name@revision`.

Only the files of a model are downloaded, by their names: config.json, weights as safetensors, and
the data that intervals and neighbours need. No other file of a repository is opened, and no pickle.
Downloaded files stay in the cache of huggingface_hub. `rnc.run.push` uploads runs.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rnc.files import CALIBRATION_FILE, CONFIG_FILE, MODEL_FILE, REFERENCE_FILE

HUB = "hf://"
HUB_FILES = (CONFIG_FILE, MODEL_FILE, CALIBRATION_FILE, REFERENCE_FILE, "README.md")
"""The files of a run in a repository. The last three may be missing."""

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_LOG_IN = "Log in with `hf auth login`, or set HF_TOKEN."


class HubAddress(NamedTuple):
    """A repository, and a branch, tag or commit of it."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{HUB}{self.repository}{'' if self.revision is None else f'@{self.revision}'}"


def is_hub_address(source: str | Path) -> bool:
    """Whether this is the address of a run on the hub. In a Path, hf:// has become hf:/."""
    return re.match("hf:/", str(source)) is not None


def parse_repository(text: str) -> str:
    """The name of a repository. Raises unless it is owner/name."""
    if not re.fullmatch(f"{_PART}/{_PART}", text) or ".." in text or "--" in text:
        raise ValueError(f"A repository on the hub is OWNER/NAME, as ada/ages; got {text!r}.")
    return text


def parse_address(source: str | Path) -> HubAddress:
    """The parts of an address.

    >>> parse_address("hf://ada/ages@v1")
    HubAddress(repository='ada/ages', revision='v1')
    """
    text = re.sub("^hf:/+", "", str(source))
    repository, at, revision = text.partition("@")
    if at and not re.fullmatch(r"[\w./-]+", revision):
        raise ValueError(f"{source}: behind @ comes a branch, a tag or a commit; got {revision!r}.")
    try:
        return HubAddress(parse_repository(repository), revision or None)
    except ValueError as error:
        raise ValueError(f"{source}: expected hf://OWNER/NAME. {error}") from None


def local_folder(source: str | Path) -> Path:
    """The folder of a run. For a run on the hub, it is the copy in the cache.

    The error says whether the run does not exist, is private, is out of reach, or is no run.
    """
    return download(parse_address(source)) if is_hub_address(source) else Path(source)


def download(address: HubAddress) -> Path:
    """The folder with the files of a run on the hub, downloaded unless they are in the cache."""
    with hub_errors(str(address)):
        from huggingface_hub import snapshot_download

        found = snapshot_download(
            address.repository, revision=address.revision, allow_patterns=list(HUB_FILES)
        )
    folder = Path(found)
    lacks = [name for name in HUB_FILES[:2] if not (folder / name).is_file()]
    if lacks:
        raise FileNotFoundError(f"{address} is no run: it has no {lacks[0]}.{_others(address)}")
    return folder


def _others(address: HubAddress) -> str:
    """Advice about a repository that is no run, by the files that it has."""
    with hub_errors(str(address)):
        from huggingface_hub import HfApi

        names = HfApi().list_repo_files(address.repository, revision=address.revision)
    pickles = [name for name in names if name.endswith(_PICKLES)]
    if pickles:
        return (
            f" {pickles[0]} is a pickle, which could run code, so that it is not opened. Weights "
            "must be safetensors: `rnc push` writes them."
        )
    return " `rnc push RUN OWNER/NAME` writes one."


@contextmanager
def hub_errors(what: str, *, writes: bool = False) -> Iterator[None]:
    """A context that turns errors of the hub into clear messages, which never contain a token."""
    try:
        import huggingface_hub.errors as errors
    except ModuleNotFoundError as error:
        raise ImportError(
            "The hub needs the package huggingface_hub: pip install 'rank-n-contrast[hub]'."
        ) from error
    try:
        yield
    except errors.GatedRepoError as error:
        raise PermissionError(
            f"{what} asks for consent first: give it on its page. {_LOG_IN}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"{what} was not found on the hub, or is private. Check the name. {_LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(
            f"{what}: there is no such branch, tag or commit. Look at its page."
        ) from error
    except errors.LocalTokenNotFoundError as error:
        raise PermissionError(f"{what}: there is no token. {_LOG_IN}") from error
    except errors.HfHubHTTPError as error:
        raise _http_words(what, error, writes=writes) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise ConnectionError(f"{what}: {_NO_NETWORK}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "requests"):
            raise
        words = "the hub cannot be reached. Is there a network?" if writes else _NO_NETWORK
        raise ConnectionError(f"{what}: {words}") from None


_NO_NETWORK = "the hub cannot be reached, and the cache does not have it. Is there a network?"


def _http_words(what: str, error: Exception, *, writes: bool) -> OSError:
    """The error for a failed request, by the status that the hub replied."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        needed = "a token that may write" if writes else "a token that may read"
        return PermissionError(
            f"{what}: the hub refuses it ({status}); {needed} is needed. {_LOG_IN}"
        )
    said = getattr(error, "server_message", None) or "no further words"
    return OSError(f"{what}: the hub answered {status} ({said}). Try again later.")
