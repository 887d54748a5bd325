"""The coalescer: one batch a turn, in order, few on their way, and whoever waits is woken."""

from __future__ import annotations

import asyncio

import pytest

from recado.feeds.block import BODY_INDEX, KEY_INDEX, MAX_MESSAGE_COUNT, Block
from recado.feeds.coalescer import MAX_MESSAGE_BYTES, PublishCoalescer

from .loop import in_the_loop

NOTHING = (b"", b"", b"", b"")


class Carried:
    """What was put, and how far it is confirmed."""

    def __init__(self, **options: int) -> None:
        self.blocks: list[Block] = []
        self.coalescer = PublishCoalescer(self.blocks.append, **options)

    @property
    def bodies(self) -> list[list[bytes]]:
        return [block.values(BODY_INDEX) for block in self.blocks]

    def confirm(self, batches: int) -> None:
        self.coalescer.confirm(sum(block.count for block in self.blocks[:batches]))


async def turn() -> None:
    """One turn of the loop."""
    await asyncio.sleep(0)


@in_the_loop
async def test_what_is_published_in_a_turn_is_one_batch() -> None:
    carried = Carried()
    assert [carried.coalescer.add(body, *NOTHING) for body in (b"a", b"b")] == [1, 2]
    assert carried.bodies == []
    await turn()
    assert carried.coalescer.add(b"c", b"key", *NOTHING[1:]) == 3
    await turn()
    assert carried.bodies == [[b"a", b"b"], [b"c"]]
    assert carried.blocks[1].values(KEY_INDEX) == [b"key"]


@in_the_loop
async def test_a_batch_that_is_full_does_not_wait_for_the_end_of_the_turn() -> None:
    carried = Carried(batch_bytes=1_000)
    for _ in range(30):
        carried.coalescer.add(bytes(100), *NOTHING)
    assert [block.count for block in carried.blocks] == [8, 8, 8]
    await turn()
    assert [block.count for block in carried.blocks] == [8, 8, 8, 6]


@in_the_loop
async def test_a_batch_has_no_more_messages_than_a_block() -> None:
    carried = Carried(batch_bytes=MAX_MESSAGE_BYTES)
    for _ in range(MAX_MESSAGE_COUNT + 1):
        carried.coalescer.add(b"", *NOTHING)
    await turn()
    assert [block.count for block in carried.blocks] == [MAX_MESSAGE_COUNT, 1]


@pytest.mark.parametrize(
    "options", [{"batch_bytes": 0}, {"batch_bytes": 1 << 30}, {"max_in_flight": 0}]
)
@in_the_loop
async def test_sizes_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Carried(**options)


@in_the_loop
async def test_few_batches_are_on_their_way() -> None:
    carried = Carried(max_in_flight=2, batch_bytes=1_000)
    coalescer = carried.coalescer
    for body in (b"a", b"b", b"c"):
        assert coalescer.has_room
        coalescer.add(body, *NOTHING)
        await turn()
    assert carried.bodies == [[b"a"], [b"b"]]
    assert not coalescer.has_room
    waiting = asyncio.create_task(coalescer.wait_for_room())
    await turn()
    assert not waiting.done()
    carried.confirm(1)
    await waiting
    assert carried.bodies == [[b"a"], [b"b"], [b"c"]]
    assert coalescer.confirmed_sequence == 1


@in_the_loop
async def test_a_flush_waits_for_what_was_published_before_it() -> None:
    carried = Carried()
    carried.coalescer.add(b"a", *NOTHING)
    flush = asyncio.create_task(carried.coalescer.wait_for_confirms())
    await turn()
    carried.coalescer.add(b"b", *NOTHING)
    await turn()
    assert not flush.done()
    carried.confirm(1)
    await flush
    assert carried.coalescer.confirmed_sequence == 1
    assert carried.coalescer.last_sequence == 2


@in_the_loop
async def test_many_are_cut_where_a_batch_is_full() -> None:
    coalescer = Carried(batch_bytes=1_000).coalescer
    bodies = [bytes(size) for size in (100, 100, 2_000, 0, 872, 900, 900)]
    pieces = coalescer.split(bodies, 0)
    cut = [bodies[piece] for piece in pieces]
    assert [[len(body) for body in some] for some in cut] == [
        [100, 100],
        [2_000],
        [0, 872],
        [900],
        [900],
    ]


@in_the_loop
async def test_many_and_one_keep_their_order() -> None:
    carried = Carried()
    carried.coalescer.add(b"a", *NOTHING)
    assert carried.coalescer.add_many([b"b", b"c"], b"", b"", b"", b"") == 3
    carried.coalescer.add(b"d", *NOTHING)
    await turn()
    assert carried.bodies == [[b"a"], [b"b", b"c"], [b"d"]]


@in_the_loop
async def test_a_failure_is_told_to_all_who_wait_and_to_all_who_come() -> None:
    carried = Carried()
    carried.coalescer.add(b"a", *NOTHING)
    flush = asyncio.create_task(carried.coalescer.wait_for_confirms())
    await turn()
    carried.coalescer.fail(ConnectionError("gone"))
    with pytest.raises(ConnectionError, match="gone"):
        await flush
    assert not carried.coalescer.has_room
    with pytest.raises(ConnectionError, match="gone"):
        await carried.coalescer.wait_for_room()
    with pytest.raises(ConnectionError, match="gone"):
        await carried.coalescer.wait_for_confirms()


@in_the_loop
async def test_who_was_cancelled_while_waiting_is_forgotten() -> None:
    carried = Carried()
    carried.coalescer.add(b"a", *NOTHING)
    flush = asyncio.create_task(carried.coalescer.wait_for_confirms())
    await turn()
    flush.cancel()
    await asyncio.gather(flush, return_exceptions=True)
    carried.confirm(1)
    await carried.coalescer.wait_for_confirms()


@in_the_loop
async def test_what_is_too_large_is_refused_with_the_limit() -> None:
    coalescer = Carried().coalescer
    with pytest.raises(ValueError, match="15,728,641 bytes exceeds the limit of 15,728,640"):
        coalescer.add(bytes(MAX_MESSAGE_BYTES + 1), *NOTHING)
    with pytest.raises(ValueError, match="256 bytes exceeds the limit of 255"):
        coalescer.add(b"", bytes(256), *NOTHING[1:])
    assert coalescer.last_sequence == 0
