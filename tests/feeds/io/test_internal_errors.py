"""A fault in this program is told as that, and never as a carrier that is out of reach (DR5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from recado.feeds.boundary import PublishRequested
from recado.feeds.errors import FeedError, JoinError, MemberFailedError, TransportLostError
from recado.feeds.layer import BatchReleased, DownEvent, Layer, UpEvent
from recado.feeds.stack import register_layer
from recado.feeds.vector import Vector
from recado.feeds.views import View

from .loop import in_the_loop, without_waiting
from .town import linking, take

STACK = "DISPATCH:{}SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"


class Mistaken(Layer):
    """Knows nothing of messages, coming or going."""

    def up(self, event: UpEvent, now: float) -> None:
        if isinstance(event, BatchReleased):
            raise ZeroDivisionError("a mistake")
        super().up(event, now)

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, PublishRequested):
            raise ZeroDivisionError("a mistake")
        super().down(event, now)


register_layer("MISTAKEN", Mistaken)


def check(error: FeedError) -> None:
    assert not isinstance(error, TransportLostError)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "transport lost" not in str(error)
    assert "internal error in this program: ZeroDivisionError: a mistake" in str(error)


@without_waiting
async def test_of_a_publisher() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes", stack=STACK.format("MISTAKEN:"))
        await feed.publish(b"x")
        with pytest.raises(MemberFailedError) as told:
            await feed.flush()
        check(told.value)
        await feed.close(flush=False)


@without_waiting
async def test_of_a_subscriber() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        mistaken = connection.feed("quotes", stack=STACK.format("MISTAKEN:"))
        async with mistaken.subscribe("desk") as messages:
            await feed.publish(b"x")
            with pytest.raises(MemberFailedError) as told:
                await take(messages, 1)
            check(told.value)


@without_waiting
async def test_of_a_callback() -> None:
    def mistaken(view: View) -> None:
        raise ZeroDivisionError("a mistake")

    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        with pytest.raises(MemberFailedError) as told:
            async with feed.subscribe("desk", on_view=mistaken) as messages:
                await take(messages, 1)
        check(told.value)


@without_waiting
async def test_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(listener: object, packet: bytes, tag: int, *, is_malformed: bool) -> None:
        raise ZeroDivisionError("a mistake")

    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with connection.archive("quotes", tmp_path) as archive:
            monkeypatch.setattr(type(archive._listener), "packet_handled", mistaken)
            await feed.publish(b"x")
            with pytest.raises(MemberFailedError) as told:
                await archive.run()
            check(told.value)


@in_the_loop
async def test_to_know_more_publishers_than_there_is_room_for() -> None:
    known = Vector({number.to_bytes(16): 1 for number in range(1, 1_026)})
    async with linking("udp") as linked, linked() as connection:
        feed = connection.feed("quotes")
        with pytest.raises(
            JoinError, match=r"knows 1,025 .* the limit on UDP is 1,024\. Start a new"
        ):
            async with feed.subscribe("desk", recovery=known):
                pass
