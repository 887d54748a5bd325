"""Sessions on transports: login, the ends of a connection, heartbeats, back-pressure and alarms."""

import asyncio
import logging

import pytest
from argon2 import PasswordHasher

from recado.amqp.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER
from recado.amqp.methods import (
    BasicConsume,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionStart,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
)
from recado.broker.access import User
from recado.server.offer import Offer

from .client import EVERYTHING, new_broker, publishing
from .rim import GUEST, Guest, in_the_loop, new_server, skip, soon, turns

SLOW = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash("secret")


# ── login ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "peer",
    [("127.0.0.1", 1), ("127.9.9.9", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1), "/socket"],
)
@in_the_loop
async def test_guest_comes_from_this_machine(peer: object) -> None:
    guest = Guest(new_server(), peer)
    assert await guest.greet() is None
    assert await guest.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]


@pytest.mark.parametrize("peer", [("10.0.0.1", 1), ("12.7.0.1", 1), ("::2", 1, 0, 0)])
@in_the_loop
async def test_guest_does_not_come_from_elsewhere(
    peer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is it told why; others do."""
    server = new_server(new_broker(GUEST, User("ada", GUEST.password_hash, (), {"/": EVERYTHING})))
    guest = Guest(server, peer)
    close = await guest.greet()
    assert close is not None
    assert close.reply_code == 403
    assert "localhost" not in close.reply_text
    assert "user 'guest' can only connect via localhost" in caplog.text
    await turns()
    assert guest.wire.ended
    assert await Guest(server, peer).greet("ada") is None


@pytest.mark.parametrize("stored", [GUEST.password_hash, SLOW, "no hash at all", "$argon2nonsense"])
@in_the_loop
async def test_a_wrong_password_and_a_wrong_name_look_alike(stored: str) -> None:
    server = new_server(new_broker(User("guest", stored, (), {"/": EVERYTHING})))
    refusals = [
        await Guest(server).greet("guest", b"wrong"),
        await Guest(server).greet("nobody", b"secret"),
    ]
    assert refusals[0] == refusals[1]
    assert refusals[0] is not None


@in_the_loop
async def test_slow_passwords_are_checked_in_a_thread_and_remembered() -> None:
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    first = Guest(server)
    assert await first.greet() is None
    again = Guest(server)
    again.feed(PROTOCOL_HEADER)
    assert await Guest(server).greet() is None


@in_the_loop
async def test_not_too_many_wait_for_their_passwords() -> None:
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    guests = [Guest(server) for _ in range(70)]
    results = await asyncio.gather(*(guest.greet() for guest in guests))
    refused = [result for result in results if result is not None]
    assert 0 < len(refused) <= 6
    assert all(close.reply_code == 403 for close in refused)


@in_the_loop
async def test_who_has_left_is_not_checked() -> None:
    server = new_server(new_broker(User("guest", SLOW, (), {"/": EVERYTHING})))
    guest = Guest(server)
    opening = asyncio.ensure_future(guest.greet())
    await turns(2)
    guest.protocol.connection_lost(None)
    other = Guest(server)
    assert await other.greet() is None
    assert guest.methods() == []
    opening.cancel()


@in_the_loop
async def test_who_is_not_told_of_a_refusal_sees_the_socket_close() -> None:
    guest = Guest(new_server())
    opening = asyncio.ensure_future(guest.greet(password=b"wrong", capabilities={}))
    await turns()
    assert guest.wire.open
    await skip(1)
    assert not guest.wire.open
    assert guest.methods() == []
    opening.cancel()


@in_the_loop
async def test_a_handshake_takes_ten_seconds_at_most(caplog: pytest.LogCaptureFixture) -> None:
    """In all: bytes that trickle in do not prolong it."""
    server = new_server()
    slow, quick = Guest(server), Guest(server)
    await quick.greet()
    for octet in PROTOCOL_HEADER:
        slow.feed(bytes((octet,)))
        await skip(1.2)
    assert slow.wire.open
    await skip(1.2)
    assert slow.wire.aborted
    assert "its handshake took too long" in caplog.text
    assert quick.wire.open
    assert server.connections == {quick.protocol}


@in_the_loop
async def test_another_protocol_is_told_ours_and_the_socket_ends() -> None:
    guest = Guest(new_server())
    guest.feed(b"GET / HTTP/1.1\r\n\r\n")
    await turns()
    assert guest.wire.written == PROTOCOL_HEADER
    assert guest.wire.ended


# ── many ──────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_a_full_server_says_so() -> None:
    server = new_server(max_connections=2)
    guests = [Guest(server) for _ in range(2)]
    for guest in guests:
        assert await guest.greet() is None
    close = await Guest(server).greet()
    assert close is not None
    assert close.reply_text == "NOT_ALLOWED - the server is full: it takes 2 connections"
    guests[0].protocol.connection_lost(None)
    (one_more,) = [each for each in server.connections if each is not guests[1].protocol]
    one_more.connection_lost(None)
    assert await Guest(server).greet() is None


@in_the_loop
async def test_an_overrun_server_turns_away_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server(max_connections=2)
    guests = [Guest(server) for _ in range(105)]
    assert [guest.wire.aborted for guest in guests].count(True) == 3
    await skip(1)
    assert "3 connections were turned away" in caplog.text
    assert len(server.connections) == 102


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_hearts_beat_while_there_is_nothing_to_say() -> None:
    guest = Guest(new_server())
    await guest.greet(heartbeat=10)
    beats = 0
    for _ in range(12):
        guest.feed(HEARTBEAT_FRAME)
        await skip(5)
        beats += guest.wire.written.count(HEARTBEAT_FRAME)
        guest.wire.written = b""
    assert guest.wire.open
    assert 6 <= beats <= 12


@in_the_loop
async def test_a_peer_that_is_silent_for_two_heartbeats_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guest = Guest(new_server())
    await guest.greet(heartbeat=10)
    for _ in range(3):
        await skip(5)
    assert guest.wire.open
    for _ in range(3):
        await skip(5)
    assert guest.wire.aborted
    assert "it has been silent for two heartbeats" in caplog.text


@in_the_loop
async def test_who_wants_no_heartbeats_gets_none() -> None:
    guest = Guest(new_server())
    await guest.greet(heartbeat=0)
    await skip(10_000)
    assert guest.wire.open
    assert guest.wire.written == b""


@in_the_loop
async def test_the_server_offers_its_heartbeat() -> None:
    guest = Guest(new_server(offer=Offer(heartbeat=7)))
    await guest.greet(heartbeat=20)
    assert guest.protocol.session.heartbeat == 7


# ── back-pressure ─────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_what_the_socket_does_not_take_waits_and_goes_on() -> None:
    server = new_server()
    consumer, publisher = Guest(server), Guest(server)
    await consumer.greet()
    await publisher.greet()
    await consumer.call(QueueDeclare("q"), BasicConsume("q", no_ack=True))
    consumer.protocol.pause_writing()
    body = bytes(100_000)
    for _ in range(100):
        publisher.feed(publishing(1, "q", body))
    await turns()
    assert consumer.wire.written == b""
    assert 2 << 20 > consumer.protocol.session.backlog > 1 << 20
    got = 0
    for _ in range(20):
        consumer.protocol.resume_writing()
        await turns()
        got += len(consumer.received())
    assert got == 100
    assert server.overfull == set()


@in_the_loop
async def test_who_asks_more_than_it_reads_is_not_read() -> None:
    guest = Guest(new_server())
    await guest.greet()
    guest.protocol.pause_writing()
    for _ in range(200):
        guest.send(*[(1, QueueDeclare("x" * 250))] * 200)
        await turns(1)
        if not guest.wire.reading:
            break
    assert not guest.wire.reading
    for _ in range(50):
        guest.protocol.resume_writing()
        await turns()
    assert guest.wire.reading


@in_the_loop
async def test_too_much_unread_for_too_long_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    server = new_server(backlog_bytes=1000, backlog_seconds=10)
    slow, recovering = Guest(server), Guest(server)
    for guest in (slow, recovering):
        await guest.greet()
        guest.wire.unsent = 5000
        guest.protocol.pause_writing()
    for _ in range(8):
        slow.wire.unsent -= 1
        await skip(1)
    recovering.wire.unsent = 900
    for _ in range(5):
        slow.wire.unsent -= 1
        await skip(1)
    assert slow.wire.aborted
    assert "it does not read what it is sent" in caplog.text
    assert recovering.wire.open


@in_the_loop
async def test_who_takes_nothing_at_all_has_stalled(caplog: pytest.LogCaptureFixture) -> None:
    """However little that is; who takes some, however slowly, has not."""
    server = new_server(stall_seconds=60)
    stalled, slow = Guest(server), Guest(server)
    for guest in (stalled, slow):
        await guest.greet()
        guest.wire.unsent = 70_000
        guest.protocol.pause_writing()
    for _ in range(63):
        slow.wire.unsent -= 1
        await skip(1)
    assert stalled.wire.aborted
    assert "it takes nothing of what it is sent" in caplog.text
    assert slow.wire.open


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_publishers_wait_while_memory_is_low(caplog: pytest.LogCaptureFixture) -> None:
    used = [0]
    server = new_server(used_memory=lambda: used[0])
    publisher, early, reader = Guest(server), Guest(server), Guest(server)
    for guest in (publisher, early, reader):
        await guest.greet()
    await publisher.call(QueueDeclare("q"), ConfirmSelect())
    used[0] = 1 << 60
    await skip(1)
    assert "publishers are blocked" in caplog.text
    publisher.feed(publishing(1, "q", b"x"))
    early.feed(publishing(1, "q", b"x")[:-1])
    reader.send((1, QueueDeclare("q", passive=True)))
    await turns()
    assert publisher.methods()[0] == ConnectionBlocked("low on memory")
    assert early.methods() == [ConnectionBlocked("low on memory")]
    assert [guest.wire.reading for guest in (publisher, early, reader)] == [False, False, True]
    assert reader.methods() == [QueueDeclareOk("q", 1, 0)]
    await skip(1)
    assert publisher.wire.open
    used[0] = 0
    await skip(1)
    assert publisher.methods() == [ConnectionUnblocked()]
    assert early.wire.reading
    assert publisher.wire.reading
    publisher.feed(publishing(1, "q", b"x"))
    await turns()
    assert len(publisher.received()) == 1


@in_the_loop
async def test_a_blocked_publisher_is_not_taken_for_silent() -> None:
    used = [1 << 60]
    server = new_server(used_memory=lambda: used[0])
    publisher = Guest(server)
    await publisher.greet(heartbeat=10)
    await skip(1)
    publisher.feed(publishing(1, "q", b"x"))
    for _ in range(20):
        await skip(5)
    assert publisher.wire.open
    publisher.protocol.connection_lost(None)
    assert server.blocked == set()


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_messages_expire_without_anybody_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    for module in ("connection", "listener"):
        monkeypatch.setattr(f"recado.server.{module}.clock", lambda: int(loop.time() * 1000))
    server = new_server()
    guest = Guest(server)
    await guest.greet()
    await guest.call(
        QueueDeclare("slow", arguments={"x-message-ttl": 10_000}),
        QueueDeclare("quick", arguments={"x-expires": 2_000}),
    )
    guest.feed(publishing(1, "slow", b"x"))
    await skip(2.1)
    queues = server.broker.vhosts["/"].queues
    assert queues.keys() == {"slow"}
    assert queues["slow"].ready == 1
    await skip(8)
    assert queues["slow"].ready == 0


# ── faults ────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_a_fault_of_ours_costs_the_client_that_met_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    guest, other = Guest(server), Guest(server)
    for each in (guest, other):
        await each.greet()
    with monkeypatch.context() as patched:
        patched.setattr(type(guest.protocol.session), "_handle", _fail)
        (close,) = await guest.call(QueueDeclare("q"))
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, close.reply_text) == (541, "INTERNAL_ERROR - see the broker's log")
    assert "a fault of ours" in caplog.text
    assert await other.call(QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]


def _fail(*_: object) -> None:
    raise RuntimeError("a fault of ours")


@in_the_loop
async def test_a_fault_in_writing_or_in_time_stops_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server()
    guest, other = Guest(server), Guest(server)
    for each in (guest, other):
        await each.greet()
    monkeypatch.setattr(guest.wire, "write", _fail)
    guest.send((1, QueueDeclare("q")))
    other.send((1, QueueDeclare("q")))
    await turns()
    assert guest.wire.aborted
    assert other.methods() == [QueueDeclareOk("q", 0, 0)]
    monkeypatch.setattr(server.broker, "tick", _fail)
    await other.call(QueueDeclare("brief", arguments={"x-expires": 1}))
    await skip(1)
    await soon(asyncio.sleep(0.01))
    assert "while messages expired" in caplog.text


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_who_closes_is_answered_and_its_socket_ends() -> None:
    guest = Guest(new_server())
    await guest.greet()
    assert await guest.call(ConnectionClose(), channel=0) == [ConnectionCloseOk()]
    assert guest.wire.ended
    assert guest.wire.open
    await skip(5)
    assert guest.wire.aborted


@in_the_loop
async def test_where_no_half_can_be_closed_all_is() -> None:
    guest = Guest(new_server(), half_close=False)
    await guest.greet()
    await guest.call(ConnectionClose(), channel=0)
    assert not guest.wire.open


@in_the_loop
async def test_a_peer_that_resets_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Guest(new_server())
    await guest.greet()

    def reset() -> None:
        raise OSError

    monkeypatch.setattr(guest.wire, "write_eof", reset)
    await guest.call(ConnectionClose(), channel=0)
    assert guest.wire.aborted


@in_the_loop
async def test_stopping_closes_every_client_properly() -> None:
    server = new_server()
    polite, deaf, full = (Guest(server) for _ in range(3))
    for guest in (polite, deaf, full):
        await guest.greet()
    full.wire.unsent = 10
    stopping = asyncio.ensure_future(server.stop())
    await turns()
    for guest in (polite, deaf, full):
        (close,) = guest.methods()
        assert isinstance(close, ConnectionClose)
        assert close.reply_code == 320
    polite.send((0, ConnectionCloseOk()))
    await turns()
    assert polite.wire.ended
    polite.wire.close()
    await skip(1)
    await soon(stopping)
    assert (deaf.wire.open, deaf.wire.aborted) == (False, False)
    assert full.wire.aborted


@in_the_loop
async def test_stopping_does_not_wait_for_those_who_have_left() -> None:
    server = new_server()
    guest = Guest(server)
    await guest.greet()
    stopping = asyncio.ensure_future(server.stop())
    await turns()
    guest.wire.close()
    await turns()
    assert stopping.done()


@in_the_loop
async def test_an_end_of_file_is_an_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    guest = Guest(new_server())
    guest.feed(PROTOCOL_HEADER)
    await turns()
    (start,) = guest.methods()
    assert isinstance(start, ConnectionStart)
    assert not guest.protocol.eof_received()
