"""The HTTP listener: authenticates requests, dispatches them by the route table, and renders the answers.

Everything runs in the event loop that also serves AMQP, so nothing here may take long. A handler runs as one
turn of the broker, as an AMQP method does, and only prepares an answer. Long lists are rendered a millisecond
at a time and written while they are rendered. Requests are limited in size, connections in number, and the time in
which a request must arrive is limited: `REQUEST_TIMEOUT_S` and `KEEPALIVE_TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from recado.broker.access import User
from recado.broker.scopes import TokenUser
from recado.server.connection import now_ms
from recado.web import SAFE_METHODS, WebAssets, render_asset, security_headers

from .access import Access, find_refusal
from .query import ListQuery, QueryError, arrange, parse_list_query, select_columns
from .request import Answer, ApiError, ApiRequest, SessionCookie, bad_request, not_found
from .routes import ApiRoute, Content, RouteTable
from .slices import SLICE_S

if TYPE_CHECKING:
    import ssl

    from .console import Console
    from .events.reader import StreamRequest
    from .sessions import ConsoleSession

log = logging.getLogger("recado.console")

REALM: Final = 'Basic realm="RabbitMQ Management"'
CHUNK_BYTES: Final = 64 * 1024
BODY_MAX_BYTES: Final = 20_000_000  # as management.http.max_body_size of RabbitMQ
SHORT_BODY_MAX_BYTES: Final = 256 * 1024
"""Of all bodies but messages and definitions, because a body is decoded in one call."""
LINE_MAX_BYTES: Final = 8_190  # of the request line, and of a header
# For the first request of a connection, and for each body, to arrive.
REQUEST_TIMEOUT_S: Final = 30.0
KEEPALIVE_TIMEOUT_S: Final = 75.0  # for a further request of a connection to arrive
WRITE_TIMEOUT_S: Final = 60.0  # for the client to read a chunk
CONNECTIONS_MAX_COUNT: Final = 2_048
EVENT_BUFFER_BYTES: Final = 32 * 1024  # that a reader of events may leave unread, apart from TCP's
EVENT_STREAM_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx passes each event on at once
}
CSRF_HEADER: Final = "X-CSRF-Token"
SECURITY_HEADERS: Final = security_headers(trusted_types="recado-worker")
"""The one policy of trusted types names the script of the shared worker."""


class _TimedHandler(RequestHandler):
    """Closes a connection whose first request does not arrive in time, and connections beyond the limit."""

    _deadline: asyncio.TimerHandle | None = None
    on_lost: Callable[[], None] | None = None
    """Called when the client disconnects, for a response that waits for events."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._manager is not None and len(self._manager.connections) > CONNECTIONS_MAX_COUNT:
            self.force_close()
            transport.close()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(REQUEST_TIMEOUT_S, self._close_if_idle)

    def request_started(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_if_idle(self) -> None:
        self._deadline = None
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Log a malformed request and return the answer, which does not quote it as that of aiohttp does."""
        super().handle_error(request, status, exc, message)
        too_long = isinstance(exc, LineTooLong)
        reason = f"a line is longer than {LINE_MAX_BYTES} bytes" if too_long else "malformed HTTP"
        response = _error_response(ApiError(status, "bad_request", reason))
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a malformed request or a lost client as one line.

        The text of aiohttp is not logged, because it quotes headers and so passwords.
        """
        error = kw.get("exc_info")
        address = self.peername
        peer = address[0] if isinstance(address, tuple) else address
        log.info("HTTP request failed: %s (peer=%s)", type(error).__name__, peer)

    def connection_lost(self, error: BaseException | None) -> None:
        self.request_started()
        super().connection_lost(error)
        if self.on_lost is not None:
            self.on_lost()


class _HttpServer(web.Server):
    def __call__(self) -> RequestHandler:
        return _TimedHandler(self, loop=self._loop, **self._kwargs)


class Site:
    """Serves a route table; `listen` opens a port, `close` closes all."""

    def __init__(
        self,
        console: Console,
        routes: RouteTable,
        *,
        assets: WebAssets | None = None,
        path_prefix: str = "",
    ) -> None:
        """Serve `assets` beside the routes. Paths may begin with `path_prefix`, which a proxy has not removed."""
        self._console = console
        self._routes = routes
        self._assets = assets
        self._prefix = path_prefix
        self._node_id = ""
        self._server = _HttpServer(
            self._serve,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_TIMEOUT_S,
            max_line_size=LINE_MAX_BYTES,
            max_field_size=LINE_MAX_BYTES,
        )
        self._listeners: list[asyncio.Server] = []

    async def listen(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        sockets: Sequence[socket.socket] = (),
    ) -> int:
        """Accept connections; return the port, which is a free one if 0 was asked for. Raises `OSError`.

        With `sockets`, which listen already, accept connections on those.
        """
        loop = asyncio.get_running_loop()
        for each in sockets:
            self._listeners.append(await loop.create_server(self._server, sock=each, ssl=tls))
        if not sockets:
            self._listeners.append(await loop.create_server(self._server, host, port, ssl=tls))
        bound_port: int = self._listeners[0].sockets[0].getsockname()[1]
        self._node_id = _node_id(self._console.node_name, bound_port)
        return bound_port

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        await self._server.shutdown(timeout=1.0)
        for listener in self._listeners:
            await listener.wait_closed()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = request.protocol
        if isinstance(handler, _TimedHandler):
            handler.request_started()
        try:
            return await self._answer(request)
        except ApiError as error:
            return _error_response(error)
        except QueryError as error:
            return _error_response(ApiError(400, error.error, error.reason))
        except TimeoutError:
            return _error_response(
                ApiError(408, "request_timeout", "the request took too long to arrive")
            )
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:  # a bug met by one request must not affect the others
            log.exception("error while handling a request (method=%s)", request.method)
            return _error_response(ApiError(500, "internal_error", "see the log of the node"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if self._prefix and path == self._prefix:
            return web.Response(status=308, headers={"location": f"{self._prefix}/"})
        if self._prefix and path.startswith(f"{self._prefix}/"):
            path = path.removeprefix(self._prefix)
        try:
            found = self._routes.find(path)
        except UnicodeDecodeError as error:
            raise bad_request("the path is not UTF-8") from error
        if found is None:
            asset = await self._assets.find(path) if self._assets is not None else None
            if asset is None:
                raise not_found()
            return render_asset(request, asset, SECURITY_HEADERS)
        methods, parameters = found
        if request.method == "OPTIONS":
            return web.Response(headers={"allow": _allowed(methods)})
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            return web.Response(status=405, headers={"allow": _allowed(methods)})
        _check_origin(request, route)
        cookie = self._cookie_of(request)
        session_id = request.cookies.get(cookie.name, "")
        session = await self._console.find_renewed_session(session_id) if session_id else None
        user = await self._authenticate(request, route, parameters.get("vhost"), session)
        content = await self._read_body(request, route)
        if route.changes_definitions:
            await self._console.imports.wait_until_idle()
        user = self._refresh(user, route, parameters.get("vhost"))
        api_request = ApiRequest(
            console=self._console,
            user=user,
            method=route.method,
            parameters=parameters,
            query=request.rel_url.query,
            content=content,
            peer=request.remote or "",
            now_ms=now_ms(),
            accept=request.headers.get("accept", ""),
            reason=request.headers.get("x-reason", "")[:255],
            last_event_id=request.headers.get("last-event-id", "")[:255],
            cookie=cookie,
            base_url=self._base_url_of(request, cookie),
            sign_in_cookie=request.cookies.get(cookie.sign_in_name, ""),
            session_id=session_id,
            session=session,
            is_connected=lambda: request.transport is not None,
        )
        answer = self._console.handle(route, api_request)
        if answer.wait is not None:
            answer = await answer.wait()
        if answer.durable:
            await self._console.server.wait_until_durable()
        return await self._render(request, api_request, answer, route)

    async def _read_body(self, request: web.BaseRequest, route: ApiRoute) -> bytes:
        if not request.can_read_body:
            return b""
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(415, "unsupported_media_type", "compressed bodies are not supported")
        is_long = route.path.endswith("/publish") or route.path.startswith(
            ("/api/definitions", "/api/all-configuration")
        )
        body_max = BODY_MAX_BYTES if is_long else SHORT_BODY_MAX_BYTES
        if (request.content_length or 0) > body_max:
            raise _too_large(body_max)
        parts, size = [], 0
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            async for part in request.content.iter_any():
                size += len(part)
                if size > body_max:
                    raise _too_large(body_max)
                parts.append(part)
        return b"".join(parts)

    def _cookie_of(self, request: web.BaseRequest) -> SessionCookie:
        # A proxy that terminates TLS sets the header. A client that sets it itself only changes its own cookie.
        is_secure = request.secure or request.headers.get("x-forwarded-proto") == "https"
        return SessionCookie(self._node_id, f"{self._prefix}/", is_secure)

    def _base_url_of(self, request: web.BaseRequest, cookie: SessionCookie) -> str:
        scheme = "https" if cookie.is_secure else "http"
        return f"{scheme}://{request.headers.get('host', '')}{self._prefix}"

    async def _authenticate(
        self,
        request: web.BaseRequest,
        route: ApiRoute,
        vhost: str | None,
        session: ConsoleSession | None,
    ) -> User:
        """Return the user of a request. Raises `ApiError` if the login or its rights do not suffice.

        A request with the header `X-CSRF-Token` is one of the console: its cookie counts, not the credentials
        that the browser may have stored for this address.
        """
        if route.access is Access.PUBLIC:
            return ANONYMOUS
        token = request.headers.get(CSRF_HEADER)
        if session is not None and (token is not None or "authorization" not in request.headers):
            if request.method not in SAFE_METHODS and not session.accepts_token(token or ""):
                raise ApiError(403, "forbidden", f"{CSRF_HEADER}: not the token of this session")
            self._check_access(session.user, route, vhost)
            return session.user
        if token is not None:
            raise ApiError(401, "not_signed_in", "the session of the console has ended")
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        peer = request.remote or ""
        if scheme.lower() == "bearer":
            user = await self._console.authenticate_token(credentials.strip(), peer)
        elif scheme.lower() == "basic":
            name, password = _decode_basic(credentials)
            user = await self._console.authenticate(name, password, peer)
        else:
            raise ApiError(401, "not_authorized", "")
        self._check_access(user, route, vhost)
        return user

    def _refresh(self, user: User, route: ApiRoute, vhost: str | None) -> User:
        """Return the current state of the user, and check its access again.

        The user may have been changed while the password was checked or the body arrived.
        """
        if isinstance(user, TokenUser):
            if user.expires_at * 1000 <= now_ms():
                raise ApiError(401, "not_authorized", "Not_Authorized")
            return user
        current = self._console.broker.users.get(user.name)
        if current is user or user is ANONYMOUS:
            return user
        if current is None or current.password_hash != user.password_hash:
            raise ApiError(401, "not_authorized", "Not_Authorized")
        self._check_access(current, route, vhost)
        return current

    def _check_access(self, user: User, route: ApiRoute, vhost: str | None) -> None:
        refusal = find_refusal(route.access, user, vhost, self._console.broker)
        if refusal is not None:
            log.warning("HTTP access denied: %s (user=%r path=%s)", refusal, user.name, route.path)
            raise ApiError(401, "not_authorised", refusal)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────

    async def _render(
        self, request: web.BaseRequest, api_request: ApiRequest, answer: Answer, route: ApiRoute
    ) -> web.StreamResponse:
        headers = {
            "cache-control": "no-cache",
            "server": "recado",
            "vary": "accept, accept-encoding, origin",
            "x-content-type-options": "nosniff",
        }
        headers.update(answer.headers)
        if answer.events is not None:
            return await self._stream_events(request, answer.events, headers)
        if answer.listing is not None:
            paginated = route.content is Content.PAGES
            query = parse_list_query(api_request.query, paginated=paginated)
            return await self._render_list(request, answer, query, headers)
        if answer.stream is not None:
            is_urgent = route.content is Content.TEXT  # the metrics
            return await self._write_slices(
                request, answer.status, headers, answer.stream, is_urgent=is_urgent
            )
        if answer.body is msgspec.UNSET:
            return web.Response(status=answer.status, headers=headers)
        body = answer.body
        if isinstance(body, bytes):
            return web.Response(status=answer.status, body=body, headers=headers)
        columns = parse_list_query(api_request.query, paginated=False).columns
        if columns is not None and isinstance(body, dict):
            body = select_columns(body, columns)
        headers["content-type"] = "application/json"
        return web.Response(status=answer.status, body=msgspec.json.encode(body), headers=headers)

    async def _stream_events(
        self, request: web.BaseRequest, wanted: StreamRequest, headers: dict[str, str]
    ) -> web.StreamResponse:
        """Send events until the client disconnects or may not see them any more."""
        headers.update(EVENT_STREAM_HEADERS)
        if request.method == "HEAD":
            return web.Response(headers=headers)
        streams, writer = self._console.events, _EventWriter(request, headers)
        with streams.open(wanted, writer) as stream, suppress(ConnectionError):
            if isinstance(request.protocol, _TimedHandler):
                request.protocol.on_lost = partial(streams.wake, stream)
            await writer.prepare()
            await streams.run(stream)
        return writer.response

    async def _render_list(
        self,
        request: web.BaseRequest,
        answer: Answer,
        query: ListQuery,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        listing = answer.listing
        assert listing is not None
        arranged = await self._console.slices.run(arrange(listing, query))

        def render() -> Iterator[bytes]:
            if arranged.envelope is None:
                yield b"["
            else:
                yield msgspec.json.encode(arranged.envelope)[:-1] + b',"items":['
            separator = b""
            for entry in arranged.entries:
                item = select_columns(listing.build(entry), query.columns)
                yield separator + msgspec.json.encode(item)
                separator = b","
            yield b"]" if arranged.envelope is None else b"]}"

        headers["content-type"] = "application/json"
        return await self._write_slices(request, answer.status, headers, render())

    async def _write_slices(
        self,
        request: web.BaseRequest,
        status: int,
        headers: dict[str, str],
        body: Iterator[bytes],
        *,
        is_urgent: bool = False,
    ) -> web.StreamResponse:
        """Write a body as it is rendered; a short one with its length, a long one in chunks."""
        response: web.StreamResponse | None = None
        parts, size = [], 0
        slice_end = perf_counter() + SLICE_S
        for part in body:
            parts.append(part)
            size += len(part)
            if size >= CHUNK_BYTES:
                if response is None:
                    response = web.StreamResponse(status=status, headers=headers)
                    await response.prepare(request)
                await _write(response, b"".join(parts))
                parts, size = [], 0
            if perf_counter() > slice_end:
                slice_end = await self._console.slices.take(is_urgent=is_urgent)
        if response is None:
            return web.Response(status=status, headers=headers, body=b"".join(parts))
        await _write(response, b"".join(parts))
        await response.write_eof()
        return response


class _EventWriter:
    """The response that an event stream is written to.

    The buffers of the socket are small, so that a client that does not read uses little memory, also of the kernel.
    """

    def __init__(self, request: web.BaseRequest, headers: dict[str, str]) -> None:
        self.response = web.StreamResponse(headers=headers)
        self.response.force_close()
        self._request = request

    async def prepare(self) -> None:
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client has disconnected")
        transport.set_write_buffer_limits(EVENT_BUFFER_BYTES)
        peer = transport.get_extra_info("socket")
        if peer is not None:
            with suppress(OSError):  # the client has disconnected
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, EVENT_BUFFER_BYTES)
        await self.response.prepare(self._request)

    @property
    def is_connected(self) -> bool:
        return self._request.transport is not None

    async def write(self, data: bytes) -> None:
        await self.response.write(data)
        await self._request.writer.drain()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


ANONYMOUS: Final = User("", "")


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await response.write(data)


def _decode_basic(encoded: str) -> tuple[str, str]:
    """Return user name and password of Basic authentication. Raises `ApiError` if they are malformed."""
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError as error:  # not ASCII, not base64, or not UTF-8
        raise ApiError(401, "not_authorized", "Not_Authorized") from error
    name, _, password = decoded.partition(":")
    return name, password


def _check_origin(request: web.BaseRequest, route: ApiRoute) -> None:
    """Refuse changes that another site makes a browser send with the user's credentials (CSRF).

    Event streams are refused as well: another site could not read them, but use up those of the user.
    """
    if request.method in SAFE_METHODS and route.content is not Content.EVENTS:
        return
    origin = request.headers.get("origin")
    host = request.headers.get("host")
    foreign = origin is not None and origin not in (f"http://{host}", f"https://{host}")
    if foreign or request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise ApiError(403, "forbidden", "cross-site request refused")


def _node_id(name: str, port: int) -> str:
    """Return an id that distinguishes the cookies of this node from those of other nodes on the same host."""
    return hashlib.sha256(f"{name}:{port}".encode()).hexdigest()[:8]


def _allowed(methods: dict[str, ApiRoute]) -> str:
    names = {*methods, "OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
    return ", ".join(sorted(names))


def _too_large(body_max: int) -> ApiError:
    return bad_request(f"the request body is larger than {body_max} bytes")


def _error_response(error: ApiError) -> web.Response:
    headers = {"content-type": "application/json", "server": "recado"}
    if error.error == "not_authorized":
        headers["www-authenticate"] = REALM
    if not error.reason and error.status == 401:
        return web.Response(status=401, headers={"www-authenticate": REALM, "server": "recado"})
    body = msgspec.json.encode({"error": error.error, "reason": error.reason})
    response = web.Response(status=error.status, headers=headers, body=body)
    if error.closes_connection:
        response.force_close()
    return response
