"""Texts of stacks: the good ones, the bad ones with where and why, and a layer of one's own."""

import pytest

from recado.feeds.block import BODY_INDEX, Block
from recado.feeds.boundary import MessageBatch, PublishRequested
from recado.feeds.layer import BatchReleased, DownEvent, Layer, UpEvent
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions
from recado.feeds.stack import (
    ARCHIVE_STACK,
    PUBLISHER_STACK,
    SUBSCRIBER_STACK,
    Stack,
    StackError,
    register_layer,
)
from recado.feeds.views import MemberId, Role

from .world import World, together

ME = MemberId("me", bytes(16))


@pytest.mark.parametrize(
    "text",
    [
        SUBSCRIBER_STACK,
        ARCHIVE_STACK,
        PUBLISHER_STACK,
        "DISPATCH:FIFO:NAK:UDP",
        "DISPATCH:SYNC:ARCHIVER:UNIFORM:TOTAL:PULL:FRAG:FIFO:NAK:MEMBERSHIP:UDP",
    ],
)
def test_good_texts(text: str) -> None:
    stack = Stack.parse(text)
    assert str(stack) == text
    assert stack.transport == text.rpartition(":")[2]
    for role in Role:
        if role is not Role.ARCHIVE or "ARCHIVER" in text:
            assert FeedMember(ME, role, stack, FeedOptions()).deadline() == 0.0


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("", 1, "missing name"),
        ("DISPATCH:SNYC:FIFO:NAK:AMQP", 10, "unknown layer 'SNYC'; the layers are DISPATCH, SYNC"),
        ("DISPATCH:FIFO:FIFO:NAK:AMQP", 15, "FIFO occurs twice"),
        ("DISPATCH:FIFO:NAK:AMQP:UDP", 24, "there is one transport, at the end"),
        ("DISPATCH:FIFO:NAK:AMQP:MEMBERSHIP", 24, "there is one transport, at the end"),
        ("DISPATCH:FIFO:NAK:MEMBERSHIP", 29, "missing transport at the end: AMQP or UDP"),
        ("FIFO:NAK:AMQP", 1, "DISPATCH must be first"),
        ("DISPATCH:NAK:FIFO:AMQP", 14, "FIFO must be above NAK"),
        ("DISPATCH:FIFO:FRAG:NAK:AMQP", 15, "FRAG must be above FIFO"),
        ("DISPATCH:PULL:SYNC:FIFO:NAK:MEMBERSHIP:AMQP", 15, "SYNC must be above PULL"),
        ("DISPATCH:MEMBERSHIP:AMQP", 25, "missing FIFO"),
        ("DISPATCH:SYNC:FIFO:NAK:AMQP", 10, "SYNC needs MEMBERSHIP"),
        ("DISPATCH:FIFO:AMQP", 10, "FIFO needs NAK"),
    ],
)
def test_bad_texts_are_refused_with_place_and_reason(text: str, at: int, what: str) -> None:
    with pytest.raises(StackError) as caught:
        Stack.parse(text)
    assert f"at character {at}:" in str(caught.value)
    assert what in str(caught.value)


def test_an_archive_needs_its_layer() -> None:
    with pytest.raises(StackError, match="no ARCHIVER"):
        FeedMember(ME, Role.ARCHIVE, Stack.parse(SUBSCRIBER_STACK), FeedOptions())


class Shout(Layer):
    """As in docs/feeds.md: what is published leaves in capitals, and arrives in small letters."""

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, PublishRequested):
            event = PublishRequested(changed(event.block, bytes.upper))
        super().down(event, now)

    def up(self, event: UpEvent, now: float) -> None:
        if isinstance(event, BatchReleased):
            batch = event.batch
            block = changed(batch.block, bytes.lower)
            event = BatchReleased(
                MessageBatch(batch.publisher, batch.first, block, batch.view, batch.certainty)
            )
        super().up(event, now)


def changed(block: Block, change: object) -> Block:
    return Block.build([change(body) for body in block.values(BODY_INDEX)])  # type: ignore[operator]


def test_a_layer_of_ones_own() -> None:
    register_layer("SHOUT", Shout)
    register_layer("SHOUT", Shout)
    stacks = {
        Role.PUBLISHER: PUBLISHER_STACK.replace("DISPATCH", "DISPATCH:SHOUT"),
        Role.SUBSCRIBER: SUBSCRIBER_STACK.replace("DISPATCH", "DISPATCH:SHOUT"),
    }
    world = World(stacks=stacks)
    publisher, x = world.add(Role.PUBLISHER), world.add(Role.SUBSCRIBER, "x")
    archiver = world.add(Role.ARCHIVE, "archive")
    assert together(world, x, archiver)
    world.publish(publisher, b"Hello")
    world.run(1)
    assert x.bodies() == [b"hello"]
    assert archiver.disk is not None
    assert archiver.disk.batches[0][1].block.values(BODY_INDEX) == [b"HELLO"]


@pytest.mark.parametrize("name", ["FIFO", "SHOUT", "small", "TWO WORDS"])
def test_names_that_cannot_be_registered(name: str) -> None:
    register_layer("SHOUT", Shout)
    with pytest.raises(StackError):
        register_layer(name, Layer)
