"""Requests and answers of the HTTP API as values.

A handler is a function from an `ApiRequest` to an `Answer`, without access to the HTTP connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.amqp.errors import AccessRefusedError, AmqpError, NotAllowedError, NotFoundError
from recado.broker.access import User
from recado.broker.broker import Broker
from recado.broker.queue import Queue
from recado.broker.vhost import Vhost
from recado.journal.journal import DISK_FULL_ERRORS
from recado.server.connection import Connection
from recado.server.session import Session

from .query import Listing

if TYPE_CHECKING:
    from .console import Console
    from .events.reader import StreamRequest
    from .message_access import MessageAccess
    from .sessions import ConsoleSession

NAME_MAX_BYTES: Final = 255  # of a short string of AMQP
SIGN_IN_AGE_MAX_S: Final = 600  # for a user to sign in at an identity provider


class ApiError(Exception):
    """A request that is answered with an error: `{"error": …, "reason": …}`."""

    closes_connection = False

    def __init__(self, status: int, error: str, reason: object) -> None:
        super().__init__(str(reason))
        self.status = status
        self.error = error
        self.reason = reason


def not_found() -> ApiError:
    """Return the error for an object that does not exist, with RabbitMQ's words."""
    return ApiError(404, "Object Not Found", "Not Found")


def bad_request(reason: object) -> ApiError:
    return ApiError(400, "bad_request", reason)


def not_authorised(reason: str) -> ApiError:
    return ApiError(401, "not_authorised", reason)


@contextmanager
def amqp_errors_as_answers() -> Iterator[None]:
    """Raise an `ApiError` in place of an error of the broker, or of its disk."""
    try:
        yield
    except NotFoundError as error:
        raise ApiError(404, "not_found", str(error)) from error
    except (AccessRefusedError, NotAllowedError) as error:
        raise not_authorised(str(error)) from error
    except AmqpError as error:
        raise bad_request(str(error)) from error
    except ConnectionError:  # of the client
        raise
    except OSError as error:
        raise storage_error(error) from error


def _is_always_connected() -> bool:
    return True


class SessionCookie(msgspec.Struct, frozen=True):
    """The cookie of the console's sessions.

    Browsers do not tell the ports of a host apart, so each node has a name of its own. Over TLS and without a
    path, the prefix `__Host-` keeps other hosts of the domain from setting it.
    """

    node_id: str
    path: str
    is_secure: bool

    @property
    def name(self) -> str:
        prefix = "__Host-" if self.is_secure and self.path == "/" else ""
        return f"{prefix}recado-{self.node_id}"

    @property
    def sign_in_name(self) -> str:
        """The name of the cookie that a browser has while its user signs in at an identity provider."""
        return f"{self.name}-sign-in"

    def render_sign_in(self, value: str) -> str:
        """Return the value of `Set-Cookie` for that cookie. It is sent when another site leads back to the node."""
        attributes = f"; Path={self.path}; HttpOnly; SameSite=Lax; Max-Age={SIGN_IN_AGE_MAX_S}"
        return f"{self.sign_in_name}={value}{attributes}{'; Secure' if self.is_secure else ''}"

    def render(self, session_id: str) -> str:
        """Return the value of the header `Set-Cookie`; an empty id removes the cookie."""
        attributes = f"; Path={self.path}; HttpOnly; SameSite=Strict"
        if self.is_secure:
            attributes += "; Secure"
        if not session_id:
            attributes += "; Max-Age=0"
        return f"{self.name}={session_id}{attributes}"


NO_COOKIE: Final = SessionCookie("", "/", is_secure=False)


def storage_error(error: OSError) -> ApiError:
    """Return the error for a change that cannot be stored: 507 if the disk is full."""
    is_full = error.errno in DISK_FULL_ERRORS
    status, name = (507, "insufficient_storage") if is_full else (500, "internal_error")
    return ApiError(status, name, f"the change cannot be stored: {error.strerror or error}")


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request.

    At most one of `body`, `listing`, `stream` and `events` is set. `wait` is awaited before the answer is
    sent, and may replace it.
    """

    status: int = 200
    body: Any = msgspec.UNSET
    listing: Listing | None = None
    stream: Iterator[bytes] | None = None
    """Rendered as it is written."""
    headers: Mapping[str, str] = {}
    durable: bool = False
    """Send the answer only when all changes up to now are on disk."""
    events: StreamRequest | None = None
    """The answer is a stream of events, which ends with the connection."""
    wait: Callable[[], Awaitable[Answer]] | None = None
    outcome: Callable[[], Mapping[str, Any]] | None = None
    """What a long operation has done; written to the audit log when `wait` has ended."""
    is_change: bool = True
    """False for a PUT, POST or DELETE that changes nothing, such as a dry run: the audit log leaves it out."""


NO_CONTENT = Answer(204, durable=True)
CREATED = Answer(201, durable=True)


class ApiRequest(msgspec.Struct):
    """A request whose user is known and may use the route."""

    console: Console
    user: User
    method: str
    parameters: dict[str, str]
    query: Mapping[str, str]
    content: bytes
    peer: str
    now_ms: int
    accept: str = ""
    """The header `Accept`."""
    reason: str = ""
    """The header `X-Reason`, which is sent to the client whose connection is closed."""
    last_event_id: str = ""
    """The header `Last-Event-ID`."""
    cookie: SessionCookie = NO_COOKIE
    base_url: str = ""
    """Where the browser finds the console, without a slash at the end."""
    sign_in_cookie: str = ""
    """What the browser keeps while its user signs in at an identity provider."""
    session_id: str = ""
    """Of the console, as the cookie has it."""
    session: ConsoleSession | None = None
    """The session of that id, if it is open."""
    is_connected: Callable[[], bool] = _is_always_connected
    """Whether the client still waits for the answer."""
    _connections: dict[Session, Connection] | None = None

    def connection_of(self, session: object) -> Connection | None:
        """Return the connection of a session; the map is built once per request."""
        if self._connections is None:
            connections = self.console.server.connections
            self._connections = {each.session: each for each in connections}
        return self._connections.get(session) if isinstance(session, Session) else None

    @property
    def broker(self) -> Broker:
        return self.console.broker

    @property
    def message_access(self) -> MessageAccess:
        """What the user sees of messages."""
        return self.console.message_policy.access_of(self.user)

    def set_user(self, user: User) -> None:
        """Add or replace a user, durably."""
        self.broker.add_user(user, persist=True)

    def repeated(self, name: str) -> list[str]:
        """Return all values of a query parameter that may be repeated.

        The query of aiohttp has `getall`; a plain mapping has one value for each name.
        """
        every: Callable[[str, list[str]], list[str]] | None = getattr(self.query, "getall", None)
        if every is not None:
            return every(name, [])
        return [self.query[name]] if name in self.query else []

    def vhost(self) -> Vhost[Queue]:
        """Return the vhost that the path names.

        Raises `ApiError` 404 if there is none; as in RabbitMQ, a PUT or POST is answered with another text.
        """
        vhost = self.broker.vhosts.get(self.parameters["vhost"])
        if vhost is None:
            if self.method in ("PUT", "POST"):
                raise ApiError(404, "not_found", f"vhost '{self.parameters['vhost']}' not found")
            raise not_found()
        return vhost

    def json(self) -> Any:
        """Return the decoded body. Raises `ApiError` if it is not JSON."""
        if not self.content:
            return {}
        try:
            return msgspec.json.decode(self.content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad_request(f"the request body is not valid JSON: {error}") from error

    def object(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises `ApiError` if it is another value."""
        value = self.json()
        if isinstance(value, dict):
            return value
        kind = "string" if isinstance(value, str) else type(value).__name__
        raise bad_request(f"invalid payload: the request body JSON-decoded to a {kind}")


def check_name(kind: str, name: str) -> str:
    """Return a name if AMQP can carry it. Raises `ApiError` if it is longer than 255 bytes."""
    if len(name.encode()) > NAME_MAX_BYTES:
        raise bad_request(f"{kind}: longer than {NAME_MAX_BYTES} bytes")
    return name
