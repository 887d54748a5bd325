"""Connection parameters: the address of a broker, credentials and options, parsed from a URL and checked.

    amqp[s]://user:password@host:port/vhost?heartbeat=20&connection_timeout=10&…

Parts are percent-encoded, so the vhost `/` is written `%2F`. As in other clients, a URL without a path means
the vhost `/`. So does a path that is only a slash (`amqp://host/`), although by RabbitMQ's URI specification it
means the vhost with the empty name: no broker has such a vhost.
"""

from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


class ConnectionParameters(msgspec.Struct, frozen=True):
    """Parameters of a connection. `str()` and `repr()` omit the password, so they can be logged."""

    host: str = "localhost"
    port: int = 5672
    username: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls: bool = False
    heartbeat: int = 20  # seconds; 0 turns heartbeats off
    connection_timeout: float = 10.0  # seconds for connecting, TLS and the AMQP handshake together
    frame_max: int = 131_072
    channel_max: int = 2047
    name: str = ""  # shown in the broker's list of connections
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True

    def __str__(self) -> str:
        scheme = "amqps" if self.tls else "amqp"
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "%2F" if self.vhost == "/" else self.vhost
        return f"{scheme}://{self.username}@{host}:{self.port}/{vhost}"

    def __repr__(self) -> str:
        return f"ConnectionParameters({self})"


def _make_integer_parser(minimum: int, maximum: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if not minimum <= value <= maximum:
            raise ValueError(f"an integer from {minimum} to {maximum}")
        return value

    return read


def _parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400:
        raise ValueError("a number of seconds greater than 0 and less than 86400")
    return value


def _parse_boolean(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in words:
        raise ValueError("true or false")
    return words[text.lower()]


_OPTION_PARSERS: dict[str, Callable[[str], object]] = {
    "heartbeat": _make_integer_parser(0, 65_535),
    "connection_timeout": _parse_seconds,
    "frame_max": _make_integer_parser(4_096, (1 << 31) - 1),
    "channel_max": _make_integer_parser(1, 65_535),
    "name": str,
    "cafile": str,
    "certfile": str,
    "keyfile": str,
    "verify": _parse_boolean,
}


def parse_url(url: str) -> ConnectionParameters:
    """Parse `amqp[s]://user:password@host:port/vhost?option=value`.

    Raises `ValueError`, which names the part of the URL that is wrong and never contains the password.
    """
    parts = urlsplit(url)
    default = DEFAULT_PORTS.get(parts.scheme)
    if default is None:
        raise ValueError(
            f"unknown URL scheme {_extract_scheme(url)!r}: expected amqp:// or amqps://"
        )
    try:
        port = default if parts.port is None else parts.port
    except ValueError:
        raise ValueError("invalid port in the URL: expected an integer from 0 to 65535") from None
    vhost = parts.path.removeprefix("/")
    if "/" in vhost:
        raise ValueError(f"invalid vhost {vhost!r} in the URL: write a slash in its name as %2F")
    values: dict[str, object] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTION_PARSERS:
            raise ValueError(
                f"unknown option {name!r} in the URL; there are {', '.join(_OPTION_PARSERS)}"
            )
        try:
            values[name] = _OPTION_PARSERS[name](text)
        except ValueError as error:
            raise ValueError(f"invalid {name}={text!r} in the URL: expected {error}") from None
    defaults = ConnectionParameters()
    parameters = ConnectionParameters(
        host=parts.hostname or defaults.host,
        port=port,
        username=defaults.username if parts.username is None else unquote(parts.username),
        password=defaults.password if parts.password is None else unquote(parts.password),
        vhost=unquote(vhost) or defaults.vhost,
        tls=parts.scheme == "amqps",
    )
    return msgspec.structs.replace(parameters, **values)


def _extract_scheme(url: str) -> str:
    scheme, colon, _ = url.partition("://")
    return f"{scheme}://" if colon else url[:8]
