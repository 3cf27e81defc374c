"""Storage URLs without their passwords, for files and messages."""

import re


def masked(url: str) -> str:
    """A URL that is safe to show: without password and query, but with the user name.

    A password may contain an unescaped @, so it ends at the last @. If there is a ? before that,
    it is unclear where the password ends, and everything after the scheme is hidden.

    >>> masked("postgresql://me:p@ss@host:5432/db?sslpassword=x")
    'postgresql://me:***@host:5432/db?***'
    >>> masked("sqlite:///runs/study.db")
    'sqlite:///runs/study.db'
    """
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        scheme, rest = "", url
    credentials, at, place = rest.rpartition("@")
    if "?" in credentials:  # it is part of the password, or there is an @ in the query
        return f"{scheme}{is_url}***"
    user, has_password, _ = credentials.partition(":")
    place, has_query, _ = place.partition("?")
    shown = f"{scheme}{is_url}{user}{':***' if has_password else ''}{at}{place}"
    return shown + ("?***" if has_query else "")


def without_secrets(text: str, url: str) -> str:
    """A database's message without the parts of the URL that `masked` hides.

    >>> without_secrets("no host 'ss@host', password secret", "pg://me:secret@ss@host/db")
    "no host '***@host', password ***"
    """
    text = text.replace(url, masked(url))
    rest = url.partition("://")[2]
    credentials, _, place = rest.rpartition("@")
    hidden = re.split(r"[@:/?&=]", credentials.partition(":")[2])
    hidden += re.findall(r"=([^&]*)", rest.partition("?")[2]) if "?" in place else []
    for secret in sorted(filter(None, hidden), key=len, reverse=True):
        text = text.replace(f"{secret}@", "***@")
        if len(secret) > 2:
            text = text.replace(secret, "***")
    return text
