"""Forged frames are refused before anything in them is decoded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recado.actors import ActorSystem
from recado.actors.remote.errors import MessageRefusedError, RefusalReason
from recado.actors.remote.inbound import handler
from recado.actors.remote.inbound.refusals import MAX_STRIKES, REFUSALS_PER_SECOND
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.envelope import read_envelope
from recado.actors.remote.wire.envelope_pb2 import MSGPACK, Payload
from recado.actors.remote.wire.frame import OVERHEAD_BYTES, encode_refusal
from tests.actors.remote.running import in_a_loop

from .mallory import (
    COOKIE,
    Account,
    Balance,
    Bank,
    Deposit,
    Link,
    Mallory,
    bank,
    connection,
    customer,
    is_refusal,
    waiting,
)

GUARDED = RemoteOptions(cookie=COOKIE, require_cookie=True)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was given to the decoder of envelopes."""
    seen: list[bytes] = []
    decode = read_envelope

    def note(data: bytes) -> Any:
        seen.append(data)
        return decode(data)

    monkeypatch.setattr(handler, "read_envelope", note)
    return seen


async def nothing_happened(house: Bank, decoded: list[bytes]) -> None:
    assert decoded == []
    assert await house.balance() == 0


@pytest.mark.parametrize("cookie", ["", "another cookie", COOKIE + " ", COOKIE.upper()])
def test_without_the_cookie_nothing_is_decoded(cookie: str, decoded: list[bytes]) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank(GUARDED) as house:
            link = house.give(Mallory(cookie).deposit())
            assert link.refusals == [RefusalReason.COOKIE]
            await nothing_happened(house, decoded)

    go()


def test_a_changed_byte_anywhere_is_noticed(decoded: list[bytes]) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank(GUARDED) as house:
            frame = Mallory(COOKIE).deposit()
            for at in range(len(frame)):
                for bit in (0x01, 0x80):
                    changed = bytearray(frame)
                    changed[at] ^= bit
                    house.give(bytes(changed))
            await nothing_happened(house, decoded)
            house.give(frame)
            assert await house.balance() == 100

    go()


def test_a_frame_cut_short_or_made_longer_is_noticed(decoded: list[bytes]) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank(GUARDED) as house:
            frame = Mallory(COOKIE).deposit()
            for size in range(len(frame)):
                house.give(frame[:size])
            house.give(frame + b"\0")
            house.give(frame + frame)
            await nothing_happened(house, decoded)

    go()


def test_parts_of_two_frames_are_no_frame(decoded: list[bytes]) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank(GUARDED) as house:
            mallory = Mallory(COOKIE)
            one, other = mallory.deposit(), mallory.deposit(one_way=True)
            house.give(one[:OVERHEAD_BYTES] + other[OVERHEAD_BYTES:])
            house.give(one[:25] + other[25:OVERHEAD_BYTES] + one[OVERHEAD_BYTES:])
            await nothing_happened(house, decoded)

    go()


@in_a_loop
async def test_who_lacks_the_cookie_is_told() -> None:
    async with bank(GUARDED) as house, customer(house.port) as poor:
        with pytest.raises(MessageRefusedError) as refused:
            await poor.actor("account", Account, node="bank").ask(Balance(), timeout=5)
        assert refused.value.reason is RefusalReason.COOKIE


@in_a_loop
async def test_who_has_the_cookie_is_served_beside_who_has_not() -> None:
    async with (
        bank(GUARDED) as house,
        customer(house.port, GUARDED) as good,
        connection(house.port) as socket,
    ):
        socket.send_frame(Mallory("wrong").deposit())
        account = good.actor("account", Account, node="bank")
        assert await account.ask(Deposit(5), timeout=5) == 5
        assert is_refusal(await socket.frame())


@in_a_loop
async def test_who_does_not_shake_hands_is_not_heard() -> None:
    """All that she sends is right, but for the beginning of the connection."""
    for beginning in (b"", b"GET / HTTP/1.1\r\nHost: bank\r\n\r\n", bytes(40)):
        async with bank() as house, connection(house.port, cookie=None) as socket:
            socket.send(beginning)
            socket.send_frame(Mallory().deposit(one_way=True))
            assert await socket.ended()
            assert await house.balance() == 0


@in_a_loop
async def test_whoever_goes_on_with_it_is_cut_off_and_others_are_not() -> None:
    async with bank(GUARDED) as house, connection(house.port) as socket:
        mallory = Mallory("wrong")
        for _ in range(MAX_STRIKES):
            socket.send_frame(mallory.deposit())
        assert await socket.ended()
        async with customer(house.port, GUARDED) as good:
            assert await good.actor("account", Account, node="bank").ask(Balance()) == 0


@in_a_loop
async def test_refusals_are_bounded_in_number() -> None:
    async with bank(GUARDED) as house:
        mallory = Mallory("wrong")
        links = [house.give(mallory.deposit()) for _ in range(REFUSALS_PER_SECOND + 500)]
        assert sum(len(link.told) for link in links) <= REFUSALS_PER_SECOND


@in_a_loop
async def test_a_refusal_is_not_refused() -> None:
    async with bank(GUARDED) as house:
        link = Link()
        for reason in RefusalReason:
            house.give(encode_refusal(bytes(16), 1, reason), link)
        assert link.told == []


@in_a_loop
async def test_the_cookie_is_never_sent() -> None:
    hub = MemoryNetwork()
    sent: list[bytes] = []

    def note(sender: str, to: str, frame: bytes) -> bool:
        sent.append(frame)
        return True

    hub.frame_filter = note
    bank_of_memory = ActorSystem("bank", transport=MemoryTransport(hub), options=GUARDED)
    other = ActorSystem("customer", transport=MemoryTransport(hub), options=GUARDED)
    async with bank_of_memory, other:
        await bank_of_memory.spawn(Account, name="account")
        account = other.actor("account", Account, node="bank")
        assert await account.ask(Deposit(1), timeout=5) == 1
    assert len(sent) >= 2
    assert not any(COOKIE.encode() in frame for frame in sent)


@in_a_loop
async def test_a_frame_for_another_node_of_the_house_is_not_for_us() -> None:
    async with bank(GUARDED) as house:
        link = house.give(Mallory(COOKIE).deposit(target="recado-actor://branch/account"))
        assert link.refusals == [RefusalReason.ENVELOPE]
        assert await house.balance() == 0


@in_a_loop
async def test_what_we_sent_is_not_taken_back() -> None:
    """Somebody sends us our own frames, or calls itself by our name."""
    async with bank(GUARDED) as house:
        link = house.give(Mallory(COOKIE, name="bank").deposit())
        assert link.refusals == [RefusalReason.ENVELOPE]
        assert await house.balance() == 0


@in_a_loop
async def test_nobody_speaks_on_the_link_of_another() -> None:
    async with bank(GUARDED) as house:
        link = house.give(Mallory(COOKIE).deposit(), Link(peer="somebody else"))
        assert link.refusals == [RefusalReason.ENVELOPE]
        assert await house.balance() == 0


@in_a_loop
async def test_only_who_was_asked_can_answer() -> None:
    """She has the cookie, and guesses the number of an ask to somebody else."""
    async with waiting() as it:
        seven, eight = (Payload(format_id=MSGPACK, body=body) for body in (b"\x07", b"\x08"))
        it.give(Mallory().frame(seven, **it.fields), Link())
        await asyncio.sleep(0)
        assert not it.future.done()
        it.give(Mallory(name="bank").frame(eight, **it.fields), Link(peer="bank"))
        assert await it.future == 8


@pytest.mark.parametrize("target", ["account", "nobody"])
def test_an_ask_that_also_wants_a_receipt_is_refused(target: str) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            target_address = f"recado-actor://bank/{target}"
            link = house.give(Mallory().deposit(target=target_address, one_way=False, receipt=True))
            for _ in range(50):
                await asyncio.sleep(0)
            assert link.refusals == [RefusalReason.ENVELOPE]
            assert link.answers == []
            assert await house.balance() == 0

    go()
