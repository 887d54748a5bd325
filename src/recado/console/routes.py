"""The table of routes: the path, the required access and the handler of each request.

A path is matched segment by segment before any decoding, so that `%2F` in the name of a vhost or a queue never
separates segments: `/api/queues/%2F/my%2Fq` names the queue `my/q` in the vhost `/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import unquote

import msgspec

from .access import Access
from .request import Answer, ApiRequest

Handler = Callable[[ApiRequest], Answer]
H = TypeVar("H", bound=Handler)

# `amq.default` stands for the default exchange, whose name is empty and cannot be written in a path.
_EXCHANGE_PARAMETERS: Final = frozenset({"exchange", "source"})


class ApiRoute(msgspec.Struct, frozen=True):
    """One method of one path; `{name}` is a parameter."""

    method: str
    path: str
    access: Access
    handler: Handler


class RouteTable:
    """All routes. Literal segments take precedence over parameters, as in `/users/bulk-delete`."""

    def __init__(self) -> None:
        self.routes: list[ApiRoute] = []
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, ApiRoute]]]] = {}

    def add(self, method: str, path: str, access: Access) -> Callable[[H], H]:
        """Return a decorator that registers a handler."""

        def register(handler: H) -> H:
            self._insert(ApiRoute(method, path, access, handler))
            return handler

        return register

    def _insert(self, route: ApiRoute) -> None:
        self.routes.append(route)
        segments = tuple(route.path.strip("/").split("/"))
        patterns = self._by_length.setdefault(len(segments), [])
        for known, methods in patterns:
            if known == segments:
                assert route.method not in methods, f"{route.method} {route.path} is there twice"
                methods[route.method] = route
                return
        patterns.append((segments, {route.method: route}))
        patterns.sort(key=lambda entry: [segment.startswith("{") for segment in entry[0]])

    def find(self, raw_path: str) -> tuple[dict[str, ApiRoute], dict[str, str]] | None:
        """Return the methods of a path and its decoded parameters; None if there is no such path."""
        raw = raw_path.strip("/").split("/")
        for pattern, methods in self._by_length.get(len(raw), ()):
            parameters: dict[str, str] = {}
            for expected, segment in zip(pattern, raw, strict=True):
                if expected.startswith("{"):
                    name = expected[1:-1]
                    value = unquote(segment, errors="strict")
                    if name in _EXCHANGE_PARAMETERS and value == "amq.default":
                        value = ""
                    parameters[name] = value
                elif expected != segment:
                    break
            else:
                return methods, parameters
        return None


API: Final = RouteTable()
"""The routes of the management API; the modules of `resources` register themselves here."""
METRICS: Final = RouteTable()
"""The routes of the port for Prometheus, which needs no login."""
