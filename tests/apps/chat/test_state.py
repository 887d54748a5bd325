"""What the server keeps of users: devices, read positions, edits, presence, search, sessions, traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .browser import Browser

NewRoom = Callable[[], str]


def run(scene: Awaitable[None]) -> None:
    async def main() -> None:
        await scene

    asyncio.run(main())


def test_read_positions_are_the_same_on_all_devices(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            async with await bob.second_device() as phone:
                for number in range(3):
                    last = await ana.send(conversation, f"message {number}")
                await bob.expect_text("message 2")
                await phone.expect_text("message 2")
                await bob.say("read", conversation=conversation, position=last["position"] - 1)
                for device in (bob, phone):
                    read = await device.expect("read")
                    assert (read["position"], read["unread"]) == (last["position"] - 1, 1)
                await phone.say("read", conversation=conversation, position=1)  # RM3
                assert (await bob.expect("read"))["unread"] == 1
                await phone.say("read", conversation=conversation, position=10**9)
                assert (await bob.expect("read"))["unread"] == 0
                await phone.socket.close()
                welcome = await phone.connect()
                assert unread_in(welcome, conversation) == 0
                await ana.send(conversation, "one more")
                await phone.expect_text("one more")
                await phone.socket.close()
                assert unread_in(await phone.connect(), conversation) == 1

    run(scene())


def unread_in(welcome: dict[str, Any], conversation: str) -> int:
    (found,) = (each for each in welcome["conversations"] if each["id"] == conversation)
    unread: int = found["unread"]
    return unread


def test_own_messages_are_not_unread_and_a_new_member_has_read_what_was_there(
    url: str, room: NewRoom
) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await ana.send(conversation, "first")
            await bob.sign_in("Bob")
            assert (await bob.join(name))["unread"] == 0
            history = await bob.get("api/history", conversation=conversation)
            assert [each["text"] for each in history["messages"]] == ["first"]
            await ana.socket.close()
            assert unread_in(await ana.connect(), conversation) == 0

    run(scene())


def test_a_message_is_edited_and_deleted_by_its_author_only(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            sent = await ana.send(conversation, "helo wrold")
            reply = await bob.send(conversation, "what?", reply_to=sent["id"])
            await bob.say("edit", client_id="forged", id=sent["id"], text="I am silly")
            assert "no such message" in (await bob.expect("failed"))["reason"]
            await bob.say("delete", client_id="forged too", id=sent["id"])
            await bob.expect("failed")
            await ana.say("edit", client_id="e", id=sent["id"], text="hello world")
            changed = await bob.expect("changed")
            assert changed["message"]["text"] == "hello world"
            assert changed["message"]["edited"] is not None
            assert changed["position"] > reply["position"]
            assert changed["message"]["position"] == sent["position"]
            found = await bob.get("api/search", text="wrold")
            assert found["messages"] == []
            await bob.socket.close()
            await ana.say("delete", client_id="d", id=sent["id"])
            await ana.expect("changed", lambda frame: frame["message"]["deleted"])
            await bob.connect({conversation: changed["position"]})
            missed = await bob.expect("missed")
            assert [each["deleted"] for each in missed["changed"]] == [True]
            assert (missed["messages"], missed["changed"][0]["text"]) == ([], "")
            page = await bob.get("api/history", conversation=conversation)
            assert page["messages"][1]["quote"]["text"] == ""
            await ana.say("edit", client_id="late", id=sent["id"], text="back again")
            await ana.expect("failed")

    run(scene())


def test_the_same_client_id_is_published_once(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana:
            await ana.sign_in("Ana", (name,))
            for _ in range(2):  # both under way at once
                await ana.say("send", client_id="x", conversation=conversation, text="once")
            first, second = await ana.expect("sent"), await ana.expect("sent")
            assert first == second
            await ana.say("send", client_id="x", conversation=conversation, text="once")
            assert await ana.expect("sent") == first
            page = await ana.get("api/history", conversation=conversation)
            assert len(page["messages"]) == 1

    run(scene())


def test_history_is_read_in_pages_and_around_a_message(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana:
            await ana.sign_in("Ana", (name,))
            sent = [await ana.send(conversation, f"number {index}") for index in range(12)]
            page = await ana.get("api/history", conversation=conversation, limit="5")
            assert [each["text"] for each in page["messages"]] == [
                f"number {index}" for index in range(7, 12)
            ]
            assert page["more"]
            before = str(page["messages"][0]["position"])
            page = await ana.get(
                "api/history", conversation=conversation, before=before, limit="10"
            )
            assert [each["text"] for each in page["messages"]] == [
                f"number {index}" for index in range(7)
            ]
            assert not page["more"]
            around = sent[5]["id"]
            page = await ana.get("api/history", conversation=conversation, around=around, limit="4")
            assert [each["id"] for each in page["messages"]] == [each["id"] for each in sent[3:7]]

    run(scene())


def test_search_finds_words_of_own_conversations_only(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        name, secret = room(), room()
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name, secret))
            await bob.sign_in("Bob", (name,))
            await ana.send(f"room:{name}", "Smörgåsbord tomorrow")
            await ana.send(f"room:{secret}", "smörgåsbord for two")
            found = await ana.get("api/search", text="smorgas")  # no accents, not finished
            assert len(found["messages"]) == 2
            found = await bob.get("api/search", text="smorgas")
            assert [each["text"] for each in found["messages"]] == ["Smörgåsbord tomorrow"]
            found = await bob.get("api/search", text='tomorrow" OR "two')
            assert found["messages"] == []
            found = await ana.get("api/search", text="two", conversation=f"room:{name}")
            assert found["messages"] == []
            for text in ("", "   ", '"', "*", "NEAR(", "a AND", "-"):
                await ana.get("api/search", text=text)

    run(scene())


def test_presence_members_and_typing(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            news = await ana.expect("members", lambda f: bob.id in f["joined"])
            assert news["conversation"] == conversation
            await ana.expect(
                "presence",
                lambda f: {"id": bob.id, "name": "Bob", "online": True} in f["users"],
            )
            await bob.say("typing", conversation=conversation)
            assert (await ana.expect("typing"))["users"] == [bob.id]
            await bob.say("leave", room=name)
            await ana.expect("members", lambda f: bob.id in f["left"])
            await bob.socket.close()
            await ana.expect(
                "presence",
                lambda f: {"id": bob.id, "name": "Bob", "online": False} in f["users"],
            )
            await ana.send(conversation, "gone?")
            await bob.connect({conversation: 0})
            assert (await bob.expect("left"))["conversation"] == conversation

    run(scene())


def test_the_drawer_shows_the_operations_of_the_own_user(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        conversation = f"room:{(name := room())}"
        async with Browser(url) as ana, Browser(url) as bob:
            await ana.sign_in("Ana", (name,))
            await bob.sign_in("Bob", (name,))
            await ana.say("drawer", open=True)
            past = await ana.expect("amqp")
            operations = [(each["operation"], each["object"]) for each in past["entries"]]
            assert operations == [
                ("exchange.declare", "private-messages"),
                ("queue.declare", ana.id),
                ("queue.bind", ana.id),
                ("basic.consume", ana.id),
                ("exchange.declare", name),
                ("queue.bind", ana.id),
            ]
            await bob.send(conversation, "not hers")
            await ana.send(conversation, "hers")
            seen: list[tuple[str, str]] = []
            while ("basic.ack", name) not in seen or seen.count(("basic.ack", ana.id)) < 2:
                more = await ana.expect("amqp")
                seen += [(each["operation"], each["object"]) for each in more["entries"]]
            assert seen.count(("basic.publish", "feed.chat")) == 1
            assert seen.count(("basic.publish", name)) == 1
            assert seen.count(("basic.deliver", ana.id)) == 2
            assert all(each["page"].startswith("https://") for each in more["entries"])

    run(scene())


def test_the_last_session_that_signs_out_ends_the_user(url: str, room: NewRoom) -> None:
    async def scene() -> None:
        async with Browser(url) as ana:
            await ana.sign_in("Ana")
            async with await ana.second_device() as phone:
                async with phone.http.delete(url + "api/session") as response:
                    assert response.status == 200
                assert (await phone.get("api/session"))["me"] is None
                assert (await ana.get("api/session"))["me"]["id"] == ana.id
            async with ana.http.delete(url + "api/session") as response:
                assert response.status == 200
            received = await ana.socket.receive()
            while received.type.name == "TEXT":
                received = await ana.socket.receive()
            assert received.type.name == "CLOSE"

    run(scene())
