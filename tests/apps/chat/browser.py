"""A browser of the chat without pages: HTTP with a cookie, and a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import aiohttp

TIMEOUT_S = 60.0

Frame = dict[str, Any]


class Browser:
    """A user at a browser; `frames` has everything that the server has sent and no test has taken."""

    def __init__(self, url: str, *, cookies: aiohttp.CookieJar | None = None) -> None:
        self.url = url
        self.cookies = cookies or aiohttp.CookieJar(unsafe=True)
        self.http = aiohttp.ClientSession(cookie_jar=self.cookies)
        self.frames: list[Frame] = []
        self.me: dict[str, str] = {}
        self._next_client_id = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    @property
    def id(self) -> str:
        return self.me["id"]

    async def get(self, path: str, **parameters: str) -> Any:
        async with self.http.get(self.url + path, params=parameters) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def sign_in(self, name: str, rooms: tuple[str, ...] = ()) -> Self:
        """Choose a name, connect, and join rooms."""
        async with self.http.post(self.url + "api/session", json={"name": name}) as response:
            assert response.status == 200, await response.text()
            self.me = (await response.json())["me"]
        await self.connect()
        for room in rooms:
            await self.join(room)
        return self

    async def connect(self, positions: dict[str, int] | None = None) -> Frame:
        self.socket = await self.http.ws_connect(self.url + "socket", max_msg_size=0)
        await self.say("resume", positions=positions)
        welcome = await self.expect("welcome")
        self.me = welcome["me"]
        return welcome

    async def second_device(self) -> Browser:
        """Return another browser of the same user."""
        async with self.http.post(self.url + "api/link") as response:
            link = (await response.json())["url"]
        other = Browser(self.url)
        async with other.http.get(link, allow_redirects=False) as response:
            assert response.status == 303
        await other.connect()
        return other

    async def say(self, type_: str, **content: Any) -> None:
        await self.socket.send_json({"type": type_, **content})

    async def expect(
        self, type_: str, condition: Callable[[Frame], bool] = lambda frame: True
    ) -> Frame:
        """Return the next frame of a type; frames before it are kept for later."""
        return await self._take(lambda frame: frame["type"] == type_ and condition(frame))

    async def expect_any(self, *types: str) -> Frame:
        """Return the next frame of one of these types."""
        return await self._take(lambda frame: frame["type"] in types)

    async def _take(self, matches: Callable[[Frame], bool]) -> Frame:
        for index, kept in enumerate(self.frames):
            if matches(kept):
                return self.frames.pop(index)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                frame: Frame = await self.socket.receive_json()
                if matches(frame):
                    return frame
                self.frames.append(frame)

    async def join(self, room: str) -> Frame:
        await self.say("join", room=room)
        conversation = f"room:{room}"
        found = await self.expect("joined", lambda frame: has_id(frame, conversation))
        joined: Frame = found["conversation"]
        return joined

    async def open(self, user_id: str) -> Frame:
        await self.say("open", user=user_id)
        opened: Frame = (await self.expect("opened"))["conversation"]
        return opened

    async def send(self, conversation: str, text: str, reply_to: str | None = None) -> Frame:
        """Send a message; return the answer."""
        self._next_client_id += 1
        client_id = f"{id(self)}-{self._next_client_id}"
        await self.say(
            "send", client_id=client_id, conversation=conversation, text=text, reply_to=reply_to
        )
        return await self.expect("sent", lambda frame: frame["client_id"] == client_id)

    async def expect_text(self, text: str) -> Frame:
        """Return the message with a text."""
        frame = await self.expect("message", lambda frame: frame["message"]["text"] == text)
        message: Frame = frame["message"]
        return message


def has_id(frame: Frame, conversation: str) -> bool:
    return bool(frame["conversation"]["id"] == conversation)
