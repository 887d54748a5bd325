"""What a page asks beside messages: who it is, pages of history in both directions, counts, and signs of life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from .browser import Browser

NewRoom = Callable[[], str]


def test_history_is_read_in_both_directions(url: str, room: NewRoom) -> None:
    async def browse() -> None:
        name = room()
        async with Browser(url) as ana:
            await ana.sign_in("Ana", (name,))
            conversation = f"room:{name}"
            sent = [await ana.send(conversation, f"number {each}") for each in range(9)]
            positions = [each["position"] for each in sent]

            async def load(path: str = "api/history", **parameters: object) -> tuple[object, ...]:
                texts = {key: str(value) for key, value in parameters.items()}
                page = await ana.get(path, conversation=conversation, **texts)
                numbers = [int(each["text"].split()[1]) for each in page["messages"]]
                return numbers, page["more"], page["more_after"]

            assert await load(limit=3) == ([6, 7, 8], True, False)
            assert await load(limit=3, before=positions[3]) == ([0, 1, 2], False, True)
            assert await load(limit=3, after=positions[3]) == ([4, 5, 6], True, True)
            assert await load(limit=3, after=positions[5]) == ([6, 7, 8], True, False)
            assert await load(limit=4, around=sent[4]["id"]) == ([2, 3, 4, 5], True, True)
            assert await load(limit=4, around=sent[8]["id"]) == ([6, 7, 8], True, False)
            found = await load("api/search", text="number", before=positions[2])
            assert found == ([1, 0], False, False)

    asyncio.run(browse())


def test_read_counts_name_what_they_count(url: str, room: NewRoom) -> None:
    """A page adds only what is newer, whether it arrives before or after the count."""

    async def read() -> None:
        name = room()
        async with Browser(url) as ana, Browser(url) as ion:
            await ana.sign_in("Ana", (name,))
            await ion.sign_in("Ion", (name,))
            positions = [
                (await ion.send(f"room:{name}", str(each)))["position"] for each in range(3)
            ]
            await ana.say("read", conversation=f"room:{name}", position=positions[0])
            frame = await ana.expect("read")
            assert (frame["unread"], frame["last_position"]) == (2, positions[2])
            other = await ana.second_device()
            async with other:
                welcome = await other.connect()
                (shown,) = (
                    each for each in welcome["conversations"] if each["id"] == f"room:{name}"
                )
                assert (shown["unread"], shown["last_position"]) == (2, positions[2])
                assert set(welcome["limits"]) == {"name", "room", "text"}

    asyncio.run(read())


def test_all_users_see_which_rooms_there_are(url: str, room: NewRoom) -> None:
    async def look() -> None:
        async with Browser(url) as ana, Browser(url) as ion:
            await ana.sign_in("Ana")
            name = room()
            await ion.sign_in("Ion", (name,))
            frame = await ana.expect(
                "rooms", lambda frame: name in [each["name"] for each in frame["rooms"]]
            )
            assert {"name": name, "members": 1} in frame["rooms"]
            await ana.say("ping")
            assert await ana.expect("pong") == {"type": "pong"}

    asyncio.run(look())


def test_a_browser_without_a_session_is_told_so(url: str) -> None:
    """By an answer and a close code: scripts see neither the status of a handshake nor prevent that it is logged."""

    async def look() -> None:
        async with aiohttp.ClientSession() as http:
            async with http.get(url + "api/session") as response:
                assert (response.status, await response.json()) == (200, {"me": None})
            async with http.ws_connect(url + "socket") as socket:
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
                assert socket.close_code == 4401

    asyncio.run(look())
