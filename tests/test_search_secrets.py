"""No password of a storage is shown or written."""

from pathlib import Path

import pytest

from rnc.search import Choice, search
from rnc.search.secrets import masked, without_secrets
from training_cases import columns, quick

URLS = {
    "postgresql+psycopg://me:secret@127.0.0.1:1/db": "postgresql+psycopg://me:***@127.0.0.1:1/db",
    "postgresql+psycopg://me:se@cret@127.0.0.1:1/db": "postgresql+psycopg://me:***@127.0.0.1:1/db",
    "postgresql+psycopg://me:se/cret@127.0.0.1:1/db": "postgresql+psycopg://me:***@127.0.0.1:1/db",
    "postgresql+psycopg://127.0.0.1:1/db?password=secret": "postgresql+psycopg://127.0.0.1:1/db?***",
    "postgresql+psycopg://me:s@127.0.0.1:1/db?sslpassword=secret": (
        "postgresql+psycopg://me:***@127.0.0.1:1/db?***"
    ),
    "postgresql://me:se?cret@host/db": "postgresql://***",
    "sqlite:///x.db?key=sec@ret": "sqlite://***",
    "me:secret@host": "me:***@host",
    "sqlite:///runs/study.db": "sqlite:///runs/study.db",
    "sqlite:////home/me@work/study.db": "sqlite:////home/me@work/study.db",
    "postgresql://me@host/db": "postgresql://me@host/db",
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_shown_without_its_secrets(url: str) -> None:
    assert masked(url) == URLS[url]


def test_a_message_of_the_database_is_cleaned() -> None:
    url = "postgresql://me:se@cret@host/db?sslpassword=hidden&options=x"
    text = without_secrets(f"no host cret@host; {url}; sslpassword 'hidden'; se@cret", url)
    assert "cret" not in text
    assert "hidden" not in text
    assert "host" in text


@pytest.mark.parametrize("url", [url for url in URLS if "+psycopg" in url])
def test_a_search_that_fails_tells_and_keeps_no_password(url: str, tmp_path: Path) -> None:
    with pytest.raises((RuntimeError, ValueError)) as error:
        list(search(columns(), quick(), tmp_path / "s", space={"lr": Choice([0.1])}, storage=url))
    written = "".join(path.read_text() for path in (tmp_path / "s").iterdir())
    for secret in ("secret", "cret", "se@"):
        assert secret not in str(error.value)
        assert secret not in written
