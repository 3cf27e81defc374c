import os
import signal
from collections.abc import Iterator

import pytest
import torch

from browser import Browser

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is imported: run it on the CPU

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them the programs
# that they start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded images go to a folder of the tests, not to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real Chromium; tests that use it are skipped where there is none."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
