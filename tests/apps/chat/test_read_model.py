"""The read model: publications applied exactly once, and made again from the history."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from recado.apps.chat.messages import ChatUser, Kind, Publication, make_publication_id
from recado.apps.chat.read_model import Reader, ReadModelWriter
from recado.apps.chat.server import ServerOptions

from .browser import Browser
from .conftest import chat_in_thread

ANA, BOB = ChatUser("a" * 32, "Ana"), ChatUser("b" * 32, "Bob")


def message(number: int, author: ChatUser = ANA, conversation: str = "room:tea") -> Publication:
    client_id = f"c{number}"
    return Publication(
        id=make_publication_id(author.id, client_id),
        kind=Kind.MESSAGE,
        conversation=conversation,
        author=author,
        client_id=client_id,
        text=f"text {number}",
        time_ms=number,
    )


def change(target: Publication, author: ChatUser, kind: Kind, text: str = "") -> Publication:
    client_id = f"{kind.value} of {target.client_id}"
    return msgspec.structs.replace(
        target,
        id=make_publication_id(author.id, client_id),
        kind=kind,
        author=author,
        client_id=client_id,
        text=text,
        target=target.id,
    )


def test_a_publication_is_applied_once_in_whatever_batch_it_comes_again(tmp_path: Path) -> None:
    """CHR1"""
    writer = ReadModelWriter(tmp_path / "chat.sqlite")
    first, second = message(1), message(2)
    applied = writer.apply([first, first, second], "v1")
    assert [(each.publication_id, each.position) for each in applied] == [
        (first.id, 1),
        (second.id, 2),
    ]
    edit = change(first, ANA, Kind.EDIT, "better")
    assert [each.position for each in writer.apply([second, edit, edit], "v2")] == [3]
    writer.close()
    writer = ReadModelWriter(tmp_path / "chat.sqlite")
    assert writer.vector == "v2"
    assert writer.apply([first, second, edit], "v3") == []
    assert [each.position for each in writer.apply([message(3)], "v4")] == [4]
    writer.close()


def test_only_the_author_changes_a_message(tmp_path: Path) -> None:
    """CHR2: whatever a program publishes to the feed."""
    writer, reader = ReadModelWriter(tmp_path / "chat.sqlite"), Reader(tmp_path / "chat.sqlite")
    sent = message(1)
    elsewhere = msgspec.structs.replace(change(sent, ANA, Kind.EDIT, "x"), conversation="room:b")
    forged = [
        change(sent, BOB, Kind.EDIT, "I am silly"),
        change(sent, BOB, Kind.DELETION),
        elsewhere,
        message(5, ANA, f"private:{BOB.id}:{'c' * 32}"),
        message(6, ANA, "private:nonsense"),
        message(7, ANA, "nonsense"),
    ]
    assert [each.publication_id for each in writer.apply([sent, *forged], "v")] == [sent.id]
    found = reader.find_message(sent.id)
    assert found is not None
    assert (found.text, found.edited_ms) == ("text 1", None)
    reader.close()
    writer.close()


def test_a_batch_that_fails_changes_nothing(tmp_path: Path) -> None:
    writer = ReadModelWriter(tmp_path / "chat.sqlite")
    unsuitable = msgspec.structs.replace(message(2), time_ms=1 << 70)  # SQLite has 64 bits
    with pytest.raises(OverflowError):
        writer.apply([message(1), unsuitable], "v1")
    assert [each.position for each in writer.apply([message(1)], "v2")] == [1]
    writer.close()


def test_each_publication_names_the_one_before_it_in_its_conversation(tmp_path: Path) -> None:
    writer = ReadModelWriter(tmp_path / "chat.sqlite")
    first, other, second = message(1), message(2, conversation="room:b"), message(3)
    deletion = change(first, ANA, Kind.DELETION)
    applied = writer.apply([first, other, second, deletion], "v")
    assert [(each.position, each.previous) for each in applied] == [(1, 0), (2, 0), (3, 1), (4, 3)]
    writer.close()


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "chat.sqlite")
    database.execute("pragma user_version = 99")
    database.close()
    with pytest.raises(ValueError, match="99"):
        ReadModelWriter(tmp_path / "chat.sqlite")


def test_messages_are_made_again_from_the_history(tmp_path: Path) -> None:
    """If the database is lost, the archive has them; users and sessions are lost."""

    async def write(url: str) -> None:
        async with Browser(url) as ana:
            await ana.sign_in("Ana", ("tea",))
            for number in range(3):
                last = await ana.send("room:tea", f"message {number}")
            await ana.say("edit", client_id="e", id=last["id"], text="message two")
            await ana.expect("sent")

    async def read(url: str) -> None:
        async with Browser(url) as bob:
            await bob.sign_in("Bob", ("tea",))
            await bob.send("room:tea", "after")
            page = await bob.get("api/history", conversation="room:tea")
            assert [each["text"] for each in page["messages"]] == [
                "message 0",
                "message 1",
                "message two",
                "after",
            ]

    with chat_in_thread(ServerOptions(data=str(tmp_path))) as running:
        asyncio.run(write(running.url))
    for path in tmp_path.glob("chat.sqlite*"):
        path.unlink()
    with chat_in_thread(ServerOptions(data=str(tmp_path))) as running:
        asyncio.run(read(running.url))


def test_a_session_expires_and_is_deleted_once(tmp_path: Path) -> None:
    writer = ReadModelWriter(tmp_path / "chat.sqlite")
    writer.add_user(ANA, b"first", now_ms=1_000)
    writer.add_session(ANA.id, b"second", now_ms=2_000)
    reader = Reader(tmp_path / "chat.sqlite")
    assert reader.find_session(b"first", since_ms=1_000) == ANA.id
    assert reader.find_session(b"first", since_ms=1_001) is None
    assert reader.find_session(b"second", since_ms=1_001) == ANA.id
    assert [writer.delete_session(b"first") for _ in range(2)] == [1, None]
    assert writer.delete_session(b"second") == 0
    reader.close()
    writer.close()
