"""Contexts: named servers, stored in a file, so that commands need no URL.

    recado context set production https://ana:secret@rabbit.example:15671
    recado context use production
    recado queues list

The server of a command is, in this order: `--url`, `--context`, the variables RECADO_URL and RECADO_CONTEXT, the
context in use, and the management port of this machine with the user guest. RECADO_PASSWORD is the password of a URL
without one. The file is `recado/contexts.toml` in XDG_CONFIG_HOME
(default: ~/.config). Only its owner can read it, because it contains passwords.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec

DEFAULT_URL: Final = "http://guest:guest@127.0.0.1:15672"
DEFAULT_PORTS: Final = {"http": 15672, "https": 15671}


class ServerUrl(msgspec.Struct, frozen=True):
    """The HTTP API of a server, and a login."""

    scheme: str
    host: str
    port: int
    prefix: str
    user: str
    password: str

    def __str__(self) -> str:
        """Return the URL without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{quote(self.user, safe='')}@{host}:{self.port}{self.prefix}"


def parse_url(url: str) -> ServerUrl:
    """Parse the URL of an HTTP API, which may contain user and password. Raises `ValueError`."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(
            f"the URL of the HTTP API begins with http:// or https://, not {parts.scheme}://"
            + (
                "; AMQP URLs are for programs, the HTTP API is usually on port 15672"
                if parts.scheme.startswith("amqp")
                else ""
            )
        )
    if not parts.hostname:
        raise ValueError("the URL of the HTTP API has no host; an example: http://localhost:15672")
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"the port in the URL of host {parts.hostname} is not a number") from None
    return ServerUrl(
        scheme=parts.scheme,
        host=parts.hostname,
        port=DEFAULT_PORTS[parts.scheme] if port is None else port,
        prefix=parts.path.rstrip("/").removesuffix("/api"),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password)
        if parts.password is not None
        else os.environ.get("RECADO_PASSWORD", "guest"),
    )


class Context(msgspec.Struct, frozen=True):
    """A named server and the vhost that commands use if none is given."""

    url: str
    vhost: str = "/"
    ca_file: str = ""


class Contexts(msgspec.Struct):
    """All contexts, and the name of the one in use."""

    contexts: dict[str, Context] = {}
    current: str = ""

    def find(self, name: str) -> Context:
        """Return a context. Raises `ValueError` with the known names if there is none with this name."""
        context = self.contexts.get(name)
        if context is None:
            known = ", ".join(sorted(self.contexts)) or "none yet; `recado context set` adds one"
            raise ValueError(f"there is no context {name!r}; known: {known}")
        return context


def contexts_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "recado" / "contexts.toml"


def load_contexts() -> Contexts:
    """Read the file of contexts; an absent one has none. Raises `ValueError` if it is invalid."""
    path = contexts_file()
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
        return msgspec.convert(document, Contexts)
    except FileNotFoundError:
        return Contexts()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error


def save_contexts(contexts: Contexts) -> None:
    """Replace the file atomically; only its owner can read it."""
    path = contexts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"current = {_quoted(contexts.current)}"]
    for name, context in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{_quoted(name)}]"]
        lines += [
            f"{key} = {_quoted(value)}" for key, value in msgspec.structs.asdict(context).items()
        ]
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8", opener=_open_private) as file:
            file.write("\n".join(lines) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _quoted(text: str) -> str:
    """Return a TOML string: JSON's escapes are a subset of TOML's, which also requires one for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def select_context(url: str | None, name: str | None) -> Context:
    """Return the server of a command, in the order of the module docstring. Raises `ValueError`."""
    if url:
        return Context(url)
    if name:
        return load_contexts().find(name)
    if os.environ.get("RECADO_URL"):
        return Context(os.environ["RECADO_URL"])
    contexts = load_contexts()
    if os.environ.get("RECADO_CONTEXT"):
        return contexts.find(os.environ["RECADO_CONTEXT"])
    return contexts.find(contexts.current) if contexts.current else Context(DEFAULT_URL)
