"""Which URLs of an identity provider may be used: with https, except on this machine."""

from __future__ import annotations

from urllib.parse import urlsplit

LOOPBACK_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))


def find_url_problems(url: str) -> list[str]:
    """Return why a URL is refused; empty if it may be used."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ["is not a URL"]
    if parts.scheme not in ("http", "https") or not host:
        return ["is not a URL with https"]
    if parts.username is not None:
        return ["must not contain a user name or password"]
    if parts.scheme == "http" and host not in LOOPBACK_HOSTS:
        return [
            "must be a URL with https: who changes the keys on their way can log in as any user"
        ]
    return []
