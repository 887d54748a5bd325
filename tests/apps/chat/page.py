"""A page of the chat without a screen: what it has sent and seen survives lost connections.

It follows the protocol as the pages in `web` do: one unanswered send per conversation, which is sent again under the
same client id after a reconnection, and positions by which it resumes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import aiohttp

Message = dict[str, Any]

RETRY_S = 0.05


class Unsent(NamedTuple):
    client_id: str
    text: str


class Page:
    """One device of a user."""

    def __init__(self, url: str, cookies: aiohttp.CookieJar, name: str) -> None:
        self.url = url
        self.name = name
        self.http = aiohttp.ClientSession(cookie_jar=cookies)
        self.outbox: dict[str, deque[Unsent]] = {}
        self.messages: dict[str, dict[str, Message]] = {}
        """By conversation and id, in the order of arrival."""
        self.positions: dict[str, int] = {}
        self._delivered: dict[str, int] = {}
        """The last position that this connection has brought of each conversation."""
        self.faults: list[str] = []
        self.connection_count = 0
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._changed = asyncio.Event()
        self._saying: set[asyncio.Task[None]] = set()
        self._number = 0
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.http.close()

    # ── the user ──────────────────────────────────────────────────────────────────────────────────────────

    def write(self, conversation: str, text: str) -> None:
        """Write a message; it is sent when its predecessors in the conversation are answered."""
        self._number += 1
        outbox = self.outbox.setdefault(conversation, deque())
        outbox.append(Unsent(f"{self.name}-{self._number}", text))
        if len(outbox) == 1:
            self._send_first(conversation)

    def join(self, room: str) -> None:
        self._say({"type": "join", "room": room})

    def drop(self) -> None:
        """Lose the connection, as when the network fails."""
        if self._socket is not None and self._socket._response.connection is not None:
            transport = self._socket._response.connection.transport
            if transport is not None:
                transport.abort()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    @property
    def is_idle(self) -> bool:
        return not any(self.outbox.values())

    def texts(self, conversation: str) -> list[str]:
        """Return the texts in the order in which the page shows them."""
        shown = sorted(
            self.messages.get(conversation, {}).values(), key=lambda each: int(each["position"])
        )
        return [each["text"] for each in shown]

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._connect_once()
            self._socket = None
            await asyncio.sleep(RETRY_S)

    async def _connect_once(self) -> None:
        async with self.http.ws_connect(self.url + "socket", max_msg_size=0) as socket:
            self._socket = socket
            self._delivered = {}
            self._say({"type": "resume", "positions": self.positions})
            async for received in socket:
                if received.type is aiohttp.WSMsgType.TEXT:
                    await self._handle(received.json())
                    self._changed.set()

    def _say(self, frame: dict[str, Any]) -> None:
        socket = self._socket
        if socket is not None and not socket.closed:
            task = asyncio.create_task(self._say_quietly(socket, frame))
            self._saying.add(task)
            task.add_done_callback(self._saying.discard)

    @staticmethod
    async def _say_quietly(socket: aiohttp.ClientWebSocketResponse, frame: dict[str, Any]) -> None:
        with suppress(ConnectionError, aiohttp.ClientError):
            await socket.send_json(frame)

    def _send_first(self, conversation: str) -> None:
        outbox = self.outbox.get(conversation)
        if outbox:
            client_id, text = outbox[0]
            send = {"type": "send", "client_id": client_id, "text": text, "reply_to": None}
            self._say({**send, "conversation": conversation})

    async def _handle(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "welcome":
                self.connection_count += 1
                for each in frame["conversations"]:
                    await self._follow(each)
                for conversation in self.outbox:
                    self._send_first(conversation)
            case "joined" | "conversation" | "opened":
                await self._follow(frame["conversation"])
            case "missed":
                if frame["more"]:
                    await self._load(frame["conversation"])
                for message in frame["messages"]:
                    self._add(message)
                self._deliver(frame["conversation"], frame["position"])
            case "message":
                self._add(frame["message"])
                self._deliver(frame["message"]["conversation"], frame["message"]["position"])
            case "changed":
                self._add(frame["message"])
                self._deliver(frame["message"]["conversation"], frame["position"])
            case "sent":
                for conversation, outbox in self.outbox.items():
                    if outbox and outbox[0].client_id == frame["client_id"]:
                        outbox.popleft()
                        self._send_first(conversation)
            case "failed":
                if not frame["retry"]:
                    self.faults.append(f"failed: {frame['reason']}")
                for conversation, outbox in self.outbox.items():
                    if outbox and outbox[0].client_id == frame["client_id"]:
                        loop = asyncio.get_running_loop()
                        loop.call_later(RETRY_S, self._send_first, conversation)
            case "error":
                self.faults.append(f"error: {frame['reason']}")
            case _:
                pass

    async def _follow(self, conversation: dict[str, Any]) -> None:
        if conversation["id"] not in self.positions:
            await self._load(conversation["id"])

    async def _load(self, conversation: str) -> None:
        """Load the history of a conversation."""
        parameters = {"conversation": conversation, "limit": "200"}
        more = True
        while more:
            address = self.url + "api/history"
            async with self.http.get(address, params=parameters) as response:
                page = await response.json()
            for message in page["messages"]:
                self._add(message)
            self._see(conversation, page["position"])
            more = page["more"]
            if page["messages"]:
                parameters["before"] = str(page["messages"][0]["position"])

    def _deliver(self, conversation: str, position: int) -> None:
        before = self._delivered.get(conversation, -1)
        if position <= before:
            self.faults.append(f"{conversation}: position {position} delivered after {before}")
        self._delivered[conversation] = position
        self._see(conversation, position)

    def _add(self, message: Message) -> None:
        conversation = message["conversation"]
        self.messages.setdefault(conversation, {})[message["id"]] = message
        self._see(conversation, message["position"])

    def _see(self, conversation: str, position: int) -> None:
        self.positions[conversation] = max(position, self.positions.get(conversation, 0))
