"""The demo: bots that are there at once, and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from recado.apps.chat.server import ServerOptions

from .browser import Browser
from .conftest import chat_in_thread


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    with chat_in_thread(ServerOptions(demo=True, demo_pace=0.05)) as running:
        yield running.url


def test_a_new_user_sees_rooms_with_messages_at_once_and_gets_an_answer(demo_url: str) -> None:
    async def visit() -> None:
        async with Browser(demo_url) as ana:
            await ana.sign_in("Ana")
            welcome = await ana.get("api/rooms")
            assert {each["name"] for each in welcome["rooms"]} == {
                "lobby",
                "messaging",
                "python",
                "random",
            }
            history = await ana.get("api/history", conversation="room:lobby")
            assert len(history["messages"]) >= 6
            assert any(each["quote"] for each in history["messages"])
            sent = await ana.send("room:lobby", "hello everyone")

            answer = await ana.expect("message", lambda f: f["message"]["thread"] == sent["id"])
            assert answer["message"]["text"].startswith("Hello Ana!")
            bot = answer["message"]["author"]["id"]
            await ana.open(bot)
            sent = await ana.send(f"user:{bot}", "and in private?")
            await ana.expect("message", lambda f: f["message"]["thread"] == sent["id"])

    asyncio.run(visit())


def test_bots_continue_to_talk_and_type(demo_url: str) -> None:
    async def visit() -> None:
        async with Browser(demo_url) as ana:
            await ana.sign_in("Ana")
            await ana.expect("typing")
            await ana.expect("message")

    asyncio.run(visit())
