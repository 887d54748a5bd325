"""Oversized frames are refused by their size, before they are read, stored or decoded."""

from __future__ import annotations

import pytest

from recado.actors.remote.errors import RefusalReason, SerializationError
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire import envelope as envelopes
from recado.actors.remote.wire.envelope_pb2 import MSGPACK, Envelope, Metadatum, Payload
from recado.actors.remote.wire.frame import REFUSAL_MIN_BYTES
from tests.actors.remote.running import in_a_loop

from .mallory import (
    Account,
    Balance,
    Deposit,
    Link,
    Mallory,
    at_most,
    bank,
    connection,
    customer,
    payload_of,
)

LIMIT = 4096
SMALL = RemoteOptions(max_frame_bytes=LIMIT)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What protobuf was given to parse."""
    seen: list[bytes] = []

    class Parser:
        @staticmethod
        def FromString(data: bytes) -> Envelope:  # noqa: N802 (protobuf's name)
            seen.append(data)
            return Envelope.FromString(data)

    monkeypatch.setattr(envelopes, "Envelope", Parser)
    return seen


@pytest.mark.parametrize("size", [LIMIT + 1, 1 << 30, 0xFFFFFFFF, 2, REFUSAL_MIN_BYTES - 1])
def test_a_connection_that_announces_it_is_closed_without_waiting_for_it(size: int) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank(SMALL) as house, connection(house.port) as socket:
            with at_most(megabytes=8):
                socket.send(size.to_bytes(4))  # and not one byte of the frame itself
                assert await socket.ended()
            assert await house.balance() == 0

    go()


def test_a_frame_above_the_limit_is_not_parsed(parsed: list[bytes]) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank(SMALL) as house:
            padding = [Metadatum(key="x", value="y" * LIMIT)]
            link = house.give(Mallory().deposit(metadata=padding))
            assert parsed == []
            assert link.answers == []
            assert await house.balance() == 0

    go()


def test_thousands_of_tiny_fields_are_not_parsed(parsed: list[bytes]) -> None:
    """Two bytes each on the wire, and objects of a hundred in memory."""

    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            mallory = Mallory()
            swarm = mallory.envelope(payload_of(Deposit(100))) + b"\x42\x00" * 400_000
            with at_most(megabytes=8):
                link = house.give(mallory.seal(swarm))
            assert parsed == []
            assert link.refusals == [RefusalReason.ENVELOPE]
            assert await house.balance() == 0

    go()


@in_a_loop
async def test_tiny_fields_inside_of_a_message_take_no_more_than_they_are() -> None:
    async with bank() as house:
        mallory = Mallory()
        inner = b"\x1a\x00" * 400_000  # manifest "", again and again
        head = mallory.envelope()
        size = len(inner)
        varint = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
        with at_most(megabytes=8):
            house.give(mallory.seal(head + b"\x22" + varint + inner))
        assert await house.balance() == 0


@pytest.mark.parametrize("field", ["target", "sender", "node", "client", "supervisor"])
def test_names_are_bounded(field: str) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            link = house.give(Mallory().deposit(**{field: "n" * 100_000}))
            assert link.refusals == [RefusalReason.ENVELOPE]
            assert await house.balance() == 0

    go()


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd\xff\xff\xff\xff",  # a list of four thousand million
        b"\xdf\xff\xff\xff\xff",  # as large a map
        b"\xc6\xff\xff\xff\xff",  # as many bytes
        b"\x81\xa6amount\xdd\x7f\xff\xff\xff",
        b"\x91" * 100_000,  # lists in lists
    ],
)
def test_sizes_that_a_body_claims_take_no_memory(body: bytes) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            with at_most(megabytes=8):
                link = house.give(Mallory().frame(payload_of(Deposit(1), body=body)))
                plain = Payload(format_id=MSGPACK, body=body)
                house.give(Mallory().frame(plain), link)
            assert link.refusals == [RefusalReason.ENVELOPE] * 2
            assert await house.balance() == 0

    go()


@in_a_loop
async def test_what_we_send_ourselves_is_bounded_and_who_asks_is_told() -> None:
    async with bank(SMALL) as house, customer(house.port, SMALL) as good:
        account = good.actor("account", Account, node="bank")
        with pytest.raises(SerializationError, match="max_frame_bytes"):
            await account.ask(Deposit(1 << 4 * LIMIT))
        assert await account.ask(Balance()) == 0


@in_a_loop
async def test_what_is_known_of_others_is_bounded() -> None:
    """A hundred thousand nodes that she makes up, each with a few words."""
    async with bank() as house:
        link = Link()
        for number in range(12_000):
            mallory = Mallory(name=f"node-{number}")
            house.give(mallory.deposit(one_way=True, target=f"recado-actor://bank/{number}"), link)
            link.told.clear()
        assert len(house.node.peer_table.peers) <= 10_000
        assert await house.balance() == 0
