import os
import signal
from collections.abc import Iterator

import pytest
import torch

from browser import Browser

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before a kernel is imported: run it on the CPU

# If a shell starts the tests in the background, they ignore Ctrl-C, and so do programs that they
# start. But the tests stop some of these by Ctrl-C, so it must work.
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
    """A real Chromium. Tests that use it are skipped if there is none."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
