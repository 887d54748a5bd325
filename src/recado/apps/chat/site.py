"""The HTTP side of the chat: the page, sessions, history and search, and the way to the WebSocket.

CHS1  A request that changes something, and a WebSocket, must come from a page of this site: the header `Origin` names
     the host that the request was sent to. The cookie is `SameSite=Strict` and `HttpOnly`.
CHS2  A user reads only conversations of which the user is a member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestPayloadError

from recado.web import WebAssets, render_asset, security_headers

from .chat import Chat
from .conversation import from_wire
from .device import TokenBucket
from .frames import show_message
from .messages import ChatUser
from .names import SEARCH_CHARACTERS_MAX, RefusedError
from .read_model import POSITION_MAX, MessagePage, format_query
from .sessions import SESSION_S, DeviceLinks, session_digest
from .socket import refuse_socket, serve_socket

WEB_FOLDER: Final = Path(__file__).parent / "web"
VENDORED: Final = ("hooks", "htm", "preact")
COOKIE_NAME: Final = "recado-chat"
BODY_MAX_BYTES: Final = 16 << 10
BODY_TIMEOUT_S: Final = 30.0
PAGE_MAX_COUNT: Final = 200
SEARCH_MAX_COUNT: Final = 50
SOCKETS_MAX_COUNT: Final = 4_096
SIGN_INS_PER_SECOND: Final = 20.0
SIGN_INS_BURST_COUNT: Final = 1_000
LINKS_PER_SECOND: Final = 5.0
LINKS_BURST_COUNT: Final = 100
HEADERS: Final = security_headers()
API_HEADERS: Final = {
    "cache-control": "no-store",
    "server": "recado",
    "x-content-type-options": "nosniff",
}

T = TypeVar("T")


class ChatSignIn(msgspec.Struct, frozen=True):
    name: str


_SIGN_IN_DECODER: Final = msgspec.json.Decoder(ChatSignIn)
_ENCODER: Final = msgspec.json.Encoder()


class RequestError(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.field = field


class ChatSite:
    """The routes of the chat."""

    def __init__(self, chat: Chat, *, folder: Path = WEB_FOLDER) -> None:
        self._chat = chat
        self._assets = WebAssets(folder, vendored=VENDORED)
        self._links = DeviceLinks()
        self._sign_ins = TokenBucket(SIGN_INS_PER_SECOND, SIGN_INS_BURST_COUNT)
        self._link_attempts = TokenBucket(LINKS_PER_SECOND, LINKS_BURST_COUNT)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._socket_count = 0
        self.application = web.Application(
            client_max_size=BODY_MAX_BYTES, middlewares=[_answer_problems]
        )
        self.application.add_routes(
            [
                web.get("/socket", self._serve_socket),
                web.get("/api/session", self._get_session),
                web.post("/api/session", self._sign_in),
                web.delete("/api/session", self._sign_out),
                web.post("/api/link", self._make_link),
                web.get("/link/{secret}", self._follow_link),
                web.get("/api/history", self._get_history),
                web.get("/api/search", self._search),
                web.get("/api/rooms", self._get_rooms),
                web.route("*", "/{path:.*}", self._get_asset),
            ]
        )

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────

    async def _find_user(self, request: web.Request) -> ChatUser | None:
        secret = request.cookies.get(COOKIE_NAME, "")
        return await self._chat.find_session(secret) if secret else None

    async def _require_user(self, request: web.Request) -> ChatUser:
        user = await self._find_user(request)
        if user is None:
            raise RequestError(401, "choose a name first")
        return user

    async def _get_session(self, request: web.Request) -> web.Response:
        return _answer({"me": await self._find_user(request)})

    async def _sign_in(self, request: web.Request) -> web.Response:
        _check_origin(request)
        if not self._sign_ins.take(asyncio.get_running_loop().time()):
            raise RequestError(429, "too many users sign in at the moment: try again in a second")
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
            wanted = _SIGN_IN_DECODER.decode(body)
        except TimeoutError as error:
            raise RequestError(408, "the request took too long to arrive") from error
        except ConnectionError as error:
            raise RequestError(400, "the connection was lost") from error
        except msgspec.DecodeError as error:
            raise RequestError(400, f"invalid request: {error!s:.200}", "name") from error
        user, secret = await self._chat.sign_in(wanted.name)
        response = _answer({"me": user})
        _set_cookie(request, response, secret)
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        _check_origin(request)
        user = await self._require_user(request)
        await self._chat.sign_out(user, request.cookies[COOKIE_NAME])
        response = _answer({})
        response.del_cookie(COOKIE_NAME, path="/", httponly=True, samesite="Strict")
        return response

    async def _make_link(self, request: web.Request) -> web.Response:
        _check_origin(request)
        user = await self._require_user(request)
        secret = self._links.make(user, asyncio.get_running_loop().time())
        scheme = "https" if _is_secure(request) else "http"
        return _answer({"url": f"{scheme}://{request.host}/link/{secret}"})

    async def _follow_link(self, request: web.Request) -> web.Response:
        """Sign a second device in. A browser that has a session keeps it, and the link stays valid.

        A browser that comes from a page of another site does not send its cookie, so it is sent here once more.
        Otherwise that page could replace the session of a user by one of its own.
        """
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return web.Response(headers={**API_HEADERS, **HEADERS, "refresh": "0"})
        response = web.Response(
            status=303, headers={**API_HEADERS, "location": "/", "referrer-policy": "no-referrer"}
        )
        if request.method == "HEAD" or await self._find_user(request) is not None:
            return response
        now_s = asyncio.get_running_loop().time()
        if not self._link_attempts.take(now_s):
            raise RequestError(429, "too many links are tried at the moment: try again in a second")
        user = self._links.take(request.match_info["secret"], now_s)
        if user is None:
            raise RequestError(404, "this link was used already, or is older than five minutes")
        _set_cookie(request, response, await self._chat.add_session(user))
        return response

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────

    async def _get_history(self, request: web.Request) -> web.Response:
        user = await self._require_user(request)
        key = self._find_conversation(request, user)
        position = self._chat.directory.last_position(key)
        limit = _parse_number(request, "limit", 50, PAGE_MAX_COUNT)
        reader = self._chat.reader
        around = request.query.get("around")
        after = _parse_number(request, "after", None, POSITION_MAX)
        if around is not None:
            page = await self._read(user, reader.load_around, key, around, limit)
            if page is None:
                raise RequestError(404, "the conversation has no such message", "around")
        elif after is not None:
            page = await self._read(user, reader.load_after, key, after, limit)
        else:
            before = _parse_number(request, "before", None, POSITION_MAX)
            page = await self._read(user, reader.load_page, key, before, limit)
        return _answer_page(page, user, position=position)

    async def _search(self, request: web.Request) -> web.Response:
        user = await self._require_user(request)
        text = request.query.get("text", "")
        if len(text) > SEARCH_CHARACTERS_MAX:
            raise RequestError(
                400, f"a search has at most {SEARCH_CHARACTERS_MAX} characters", "text"
            )
        if "conversation" in request.query:
            keys = [self._find_conversation(request, user)]
        else:
            keys = self._chat.directory.conversations_of(user.id)
        query = format_query(text)
        before = _parse_number(request, "before", None, POSITION_MAX)
        if not query or not keys:
            return _answer_page(MessagePage([], False), user)
        reader = self._chat.reader
        return _answer_page(
            await self._read(user, reader.search, query, keys, before, SEARCH_MAX_COUNT), user
        )

    async def _get_rooms(self, request: web.Request) -> web.Response:
        await self._require_user(request)
        return _answer({"rooms": self._chat.welcome.list_rooms()})

    async def _read(self, user: ChatUser, function: Callable[..., T], *arguments: object) -> T:
        """Call a method of the reader: one at a time for a user, who so cannot occupy all of its threads."""
        turn = self._turns.setdefault(user.id, asyncio.Lock())
        async with turn:
            return await self._chat.read(function, *arguments)

    def _find_conversation(self, request: web.Request, user: ChatUser) -> str:
        key = from_wire(request.query.get("conversation", ""), user.id)
        self._chat.directory.require_member(user.id, key)
        return key

    # ── the page and its socket ───────────────────────────────────────────────────────────────────────────

    async def _get_asset(self, request: web.Request) -> web.Response:
        asset = await self._assets.find(request.rel_url.raw_path)
        if asset is None:
            raise RequestError(404, "there is nothing at this address")
        return render_asset(request, asset, HEADERS)

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        _check_origin(request)
        user = await self._find_user(request)
        if user is None:
            return await refuse_socket(request)
        if self._socket_count >= SOCKETS_MAX_COUNT:
            raise RequestError(503, f"{SOCKETS_MAX_COUNT:,} browsers are connected already")
        self._socket_count += 1
        try:
            digest = session_digest(request.cookies[COOKIE_NAME])
            return await serve_socket(self._chat, user, digest, request)
        finally:
            self._socket_count -= 1


@web.middleware
async def _answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as error:
        return _answer({"reason": error.reason, "field": error.field}, 400)
    except RequestError as problem:
        return _answer({"reason": problem.reason, "field": problem.field}, problem.status)
    except web.HTTPRequestEntityTooLarge:
        return _answer({"reason": f"a request has at most {BODY_MAX_BYTES:,} bytes"}, 413)
    except RequestPayloadError:
        return _answer({"reason": "the body of the request is malformed"}, 400)


def _check_origin(request: web.Request) -> None:
    """Refuse a request from a page of another site. Programs that are no browsers send no `Origin`."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    try:
        host = request.host if origin is None else urlsplit(origin).netloc
    except ValueError:  # an address such as `http://[`
        host = ""
    if host.lower() != request.host.lower() or site not in ("same-origin", "none"):
        raise RequestError(403, "the request comes from a page of another site")


def _is_secure(request: web.Request) -> bool:
    return request.secure or request.headers.get("x-forwarded-proto") == "https"


def _set_cookie(request: web.Request, response: web.Response, secret: str) -> None:
    response.set_cookie(
        COOKIE_NAME,
        secret,
        max_age=SESSION_S,
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="Strict",
    )


def _parse_number(request: web.Request, name: str, default: int | None, most: int) -> Any:
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 20 or int(text) < 1:
        raise RequestError(400, f"{name} is not a positive number", name)
    return min(int(text), most)


def _answer_page(page: MessagePage, user: ChatUser, **more: Any) -> web.Response:
    messages = [show_message(each, user.id) for each in page.messages]
    found = {"messages": messages, "more": page.more, "more_after": page.more_after}
    return _answer({**found, **more})


def _answer(content: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        status=status,
        headers=API_HEADERS,
        body=_ENCODER.encode(content),
        content_type="application/json",
    )
