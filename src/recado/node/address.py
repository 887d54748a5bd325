"""Addresses: where the node listens, and how its own parts connect to it, as any client does."""

from __future__ import annotations

from urllib.parse import quote

from recado.node.settings import Settings

# A client cannot connect to a wildcard address. Via the loopback address it can also log in as guest, which is
# restricted to localhost (`access.loopback_users`).
LOOPBACK_BY_WILDCARD = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def format_address(host: str, port: int) -> str:
    """Return host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connectable_host(host: str) -> str:
    """Return a host to connect to, for a host to listen on."""
    return LOOPBACK_BY_WILDCARD.get(host, host)


def build_local_url(settings: Settings, address: str, vhost: str) -> str:
    """Return the URL of the node's own broker, with the login of `feeds.user`.

    `find_problems` has checked that this user has a plain password.
    """
    user = settings.feeds.user
    password = settings.access.effective_users()[user].password or ""
    return f"amqp://{quote(user, '')}:{quote(password, '')}@{address}/{quote(vhost, '')}"
