"""The AMQP URL of a server whose HTTP API is known, for commands that need a stream of messages."""

from __future__ import annotations

from urllib.parse import quote

from .api import ManagementApi, ManagementError, path_of

SCHEMES = {"amqp": "amqp", "amqp/ssl": "amqps"}
"""The scheme of a URL, by the protocol of a listener."""


def find_amqp_url(api: ManagementApi, vhost: str) -> str:
    """Return the AMQP URL at the host of the HTTP API, with the same login. Raises `ManagementError`."""
    listeners = api.get(path_of("overview")).get("listeners", [])
    ports = {each["protocol"]: each["port"] for each in listeners}
    address = api.address
    # Prefer TLS if the server is administered over HTTPS, because it is then likely to be far away.
    protocols = sorted(SCHEMES, reverse=address.scheme == "https")
    for protocol in protocols:
        if protocol in ports:
            host = f"[{address.host}]" if ":" in address.host else address.host
            login = f"{quote(address.user, safe='')}:{quote(address.password, safe='')}"
            path = quote(vhost, safe="")
            return f"{SCHEMES[protocol]}://{login}@{host}:{ports[protocol]}/{path}"
    raise ManagementError(
        0,
        f"{address} names no AMQP port (its listeners: {ports}); set the URL with --amqp-url"
        " (recado migrate: --from-amqp, --to-amqp)",
    )
