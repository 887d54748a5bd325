"""What users do in rooms and in private, seen by their browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .browser import Browser

NewRoom = Callable[[], str]


def test_a_message_reaches_all_members_with_its_author_and_position(
    url: str, room: NewRoom
) -> None:
    async def talk() -> None:
        name = room()
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            answer = await ana.send(f"room:{name}", "hello")
            seen, own = await bob.expect_text("hello"), await ana.expect_text("hello")
            assert seen["author"] == {"id": ana.id, "name": "Ana"}
            assert (seen["id"], seen["position"]) == (answer["id"], answer["position"])
            assert own["client_id"] == answer["client_id"]
            assert "client_id" not in seen
            assert seen["conversation"] == f"room:{name}"

    asyncio.run(talk())


def test_a_reply_continues_the_thread_and_quotes_the_message(url: str, room: NewRoom) -> None:
    async def talk() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            first = await ana.send(conversation, "who brings the cake?" + "?" * 300)
            second = await bob.send(conversation, "I do", reply_to=first["id"])
            await ana.send(conversation, "great", reply_to=second["id"])
            reply, further = await bob.expect_text("I do"), await bob.expect_text("great")
            assert reply["thread"] == further["thread"] == first["id"]
            assert reply["quote"]["author_name"] == "Ana"
            assert len(reply["quote"]["text"]) == 200
            assert further["quote"] == {"id": second["id"], "author_name": "Bob", "text": "I do"}

    asyncio.run(talk())


def test_a_private_message_reaches_both_users_and_nobody_else(url: str, room: NewRoom) -> None:
    async def talk() -> None:
        name = room()
        async with Browser(url) as ana, Browser(url) as bob, Browser(url) as eve:
            for browser, user in ((ana, "Ana"), (bob, "Bob"), (eve, "Eve")):
                await browser.sign_in(user, (name,))
            opened = await ana.open(bob.id)
            assert (opened["id"], opened["title"]) == (f"user:{bob.id}", "Bob")
            await ana.send(f"user:{bob.id}", "psst")
            assert (await ana.expect_text("psst"))["conversation"] == f"user:{bob.id}"
            news = (await bob.expect("conversation"))["conversation"]
            assert (news["id"], news["unread"]) == (f"user:{ana.id}", 1)
            missed = await bob.expect("missed")
            assert [each["text"] for each in missed["messages"]] == ["psst"]
            await bob.send(f"user:{ana.id}", "what?")
            assert (await ana.expect_text("what?"))["author"]["name"] == "Bob"
            await ana.send(f"room:{name}", "public")
            await eve.expect_text("public")
            texts = [f["message"]["text"] for f in eve.frames if f["type"] == "message"]
            assert texts == []

    asyncio.run(talk())
