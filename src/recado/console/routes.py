"""The table of routes: path, required access, handler and description of each request.

A path is matched segment by segment before any decoding, so that `%2F` in the name of a vhost or a queue never
separates segments: `/api/queues/%2F/my%2Fq` names the queue `my/q` in the vhost `/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import msgspec

from .access import Access
from .query import LIST_PARAMETERS, OBJECT_PARAMETERS, PAGE_PARAMETERS, QueryParameter
from .request import Answer, ApiRequest

Handler = Callable[[ApiRequest], Answer]
H = TypeVar("H", bound=Handler)

# `amq.default` stands for the default exchange, whose name is empty and cannot be written in a path.
_EXCHANGE_PARAMETERS: Final = frozenset({"exchange", "source"})


class Content(Enum):
    """What the body of a successful answer is, and so which query parameters apply to it."""

    OBJECT = auto()  # a JSON object, of which `columns` selects fields
    LIST = auto()  # a JSON array, sorted by `sort`
    PAGES = auto()  # a JSON array, or with `page` an object with one page of it
    TEXT = auto()  # metrics
    EVENTS = auto()  # server-sent events, without an end

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        return _CONTENT_PARAMETERS[self]


_CONTENT_PARAMETERS: Final = {
    Content.OBJECT: OBJECT_PARAMETERS,
    Content.LIST: LIST_PARAMETERS,
    Content.PAGES: LIST_PARAMETERS + PAGE_PARAMETERS,
    Content.TEXT: (),
    Content.EVENTS: (),
}
_MESSAGE_ACTIONS: Final = (
    "/publish",
    "/get",
    "/peek",
    "/reveal",
    "/move",
    "/replay",
    "/search",
    "/requeue",
    "/contents",
    "/delete-messages",
    "/route-test",
    "/tap",
    "/watch",
)
_OTHER_CHANGES: Final = (
    "/api/all-configuration",
    "/api/auth",
    "/api/connections",
    "/api/definitions",
    "/api/login",
    "/api/reset",
    "/api/session",
    "/api/snapshots",
    "/api/stream",
    "/api/taps",
    "/api/traces",
)
CHANGING_METHODS: Final = frozenset({"PUT", "POST", "DELETE"})
_ANSWERS: Final = {"GET": (200,), "POST": (200,), "PUT": (201, 204), "DELETE": (204,)}


class ApiRoute(msgspec.Struct, frozen=True):
    """One method of one path, and its description; `{name}` in the path is a parameter.

    The first line of the handler's docstring is the summary. `answers` are the statuses besides those of the
    errors that any route may answer. `body` is the type with which the handler reads the body; None if it
    ignores the body.
    """

    method: str
    path: str
    access: Access
    handler: Handler
    answers: tuple[int, ...]
    content: Content
    body: Any
    query: tuple[QueryParameter, ...]

    @property
    def summary(self) -> str:
        """What the route does, in a sentence."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def changes_definitions(self) -> bool:
        """Whether the request changes objects that an import may change too: then it waits for a running import.

        Imports themselves do not wait; they are refused while another one runs.
        """
        if self.method not in CHANGING_METHODS:
            return False
        is_exempt = self.path.startswith(_OTHER_CHANGES)
        return not is_exempt and not self.path.endswith(_MESSAGE_ACTIONS)


class RouteTable:
    """All routes. Literal segments take precedence over parameters, as in `/users/bulk-delete`."""

    def __init__(self) -> None:
        self.routes: list[ApiRoute] = []
        self._by_length: dict[int, list[tuple[tuple[str, ...], dict[str, ApiRoute]]]] = {}

    def add(
        self,
        method: str,
        path: str,
        access: Access,
        *,
        answers: tuple[int, ...] | None = None,
        content: Content = Content.OBJECT,
        body: Any = None,
        query: tuple[QueryParameter, ...] = (),
    ) -> Callable[[H], H]:
        """Return a decorator that registers a handler. See `ApiRoute`; `answers` has a default for each method."""

        def register(handler: H) -> H:
            statuses = answers or _ANSWERS[method]
            parameters = content.parameters if 200 in statuses else ()
            self._insert(
                ApiRoute(method, path, access, handler, statuses, content, body, parameters + query)
            )
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
