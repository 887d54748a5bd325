"""Sessions on transports: heartbeats, back-pressure, alarms, time, faults, and how connections end."""

import asyncio

import pytest

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
from recado.server.options import ConnectionOptions
from recado.server.server import READ_BUFFER_BYTES

from .client import publishing
from .harness import Guest, in_the_loop, new_server, skip, soon, turns


def is_read(guest: Guest) -> bool:
    return guest.wire.reading


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
    assert "closing connection: missed heartbeats" in caplog.text


@in_the_loop
async def test_heartbeats_can_be_disabled() -> None:
    guest = Guest(new_server())
    await guest.greet(heartbeat=0)
    await skip(10_000)
    assert guest.wire.open
    assert guest.wire.written == b""


@in_the_loop
async def test_the_server_offers_its_heartbeat() -> None:
    guest = Guest(new_server(offer=ConnectionOptions(heartbeat=7)))
    await guest.greet(heartbeat=20)
    assert guest.protocol.session.heartbeat == 7


# ── back-pressure ─────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_output_that_the_socket_does_not_take_is_written_later() -> None:
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
    assert 2 << 20 > consumer.protocol.session.unsent_bytes > 1 << 20
    got = 0
    for _ in range(20):
        consumer.protocol.resume_writing()
        await turns()
        got += len(consumer.received())
    assert got == 100
    assert server.write_paused == set()


@in_the_loop
async def test_a_socket_may_be_full_in_the_middle() -> None:
    server = new_server()
    guest = Guest(server)
    await guest.greet()
    await guest.call(QueueDeclare("q"), BasicConsume("q", no_ack=True))
    guest.wire.room = 300_000
    for _ in range(10):
        guest.feed(publishing(1, "q", bytes(100_000)))
    await turns()
    assert 3 <= len(guest.received()) < 10
    assert server.write_paused == {guest.protocol}
    guest.protocol.resume_writing()
    await turns()
    assert len(guest.received()) > 0


@in_the_loop
async def test_a_client_that_does_not_read_its_replies_is_not_read() -> None:
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
    server = new_server(unread_max_bytes=1000, unread_timeout=10)
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
    assert "closing connection: client does not read its output" in caplog.text
    assert recovering.wire.open


@in_the_loop
async def test_a_client_that_reads_nothing_has_stalled(caplog: pytest.LogCaptureFixture) -> None:
    """However little is unread; a client that reads slowly has not stalled."""
    server = new_server(write_timeout=60)
    stalled, slow = Guest(server), Guest(server)
    for guest in (stalled, slow):
        await guest.greet()
        guest.wire.unsent = 70_000
        guest.protocol.pause_writing()
    for _ in range(63):
        slow.wire.unsent -= 1
        await skip(1)
    assert stalled.wire.aborted
    assert "closing connection: write stalled" in caplog.text
    assert slow.wire.open


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_the_memory_in_use_is_logged_only_for_a_memory_alarm(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [1 << 60]
    server = new_server(used_memory=lambda: used[0])
    server.check_resources()
    assert f"alarm: low on memory, publishers are blocked (used_bytes={1 << 60} " in caplog.text
    used[0] = 0
    server.check_resources()
    monkeypatch.setattr(server.broker.store, "disk_shortage", lambda: "low on disk")
    server.check_resources()
    assert "alarm: low on disk, publishers are blocked (setting=" in caplog.text


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
    publisher.feed(publishing(1, "q", b"on its way already"))
    early.feed(publishing(1, "q", b"x")[:-1])
    reader.send((1, QueueDeclare("q", passive=True)))
    await turns()
    assert publisher.methods().count(ConnectionBlocked("low on memory")) == 1
    assert early.methods() == [ConnectionBlocked("low on memory")]
    assert [guest.wire.reading for guest in (publisher, early, reader)] == [False, False, True]
    assert reader.methods() == [QueueDeclareOk("q", 2, 0)]
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
    for module in ("connection", "server"):
        monkeypatch.setattr(f"recado.server.{module}.now_ms", lambda: int(loop.time() * 1000))
    server = new_server()
    guest = Guest(server)
    await guest.greet()
    await guest.call(QueueDeclare("slow", arguments={"x-message-ttl": 10_000}))
    guest.feed(publishing(1, "slow", b"x"))
    await guest.call(QueueDeclare("quick", arguments={"x-expires": 2_000}))
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


@in_the_loop
async def test_a_fault_while_going_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guest = Guest(new_server())
    await guest.greet()
    guest.protocol.session.congested = True
    monkeypatch.setattr(type(guest.protocol.session), "on_drained", _fail)
    close = (await guest.call(QueueDeclare("q")))[-1]
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 541
    assert "a fault of ours" in caplog.text


def _fail(*_: object) -> None:
    raise RuntimeError("a fault of ours")


@in_the_loop
async def test_a_bug_in_writing_or_in_timers_does_not_affect_other_connections(
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
    assert "error while running timers" in caplog.text


@in_the_loop
async def test_a_loop_that_reads_repeatedly_yields_to_other_connections() -> None:
    """As uvloop does while a read fills the buffer."""
    server = new_server()
    server.reads_repeatedly_per_turn = True
    guest, other = Guest(server), Guest(server)
    for each in (guest, other):
        await each.greet()
    await guest.call(QueueDeclare("q"))
    message = publishing(1, "q", b"x" * 1000)
    guest.feed(message)
    assert is_read(guest)
    read = (message * (READ_BUFFER_BYTES // len(message) + 1))[:READ_BUFFER_BYTES]
    guest.feed(read)
    assert not is_read(guest)
    assert await other.call(QueueDeclare("q", passive=True)) != []
    assert is_read(guest)
    guest.feed(read)
    guest.wire.close()
    await turns()
    assert not is_read(guest)


@in_the_loop
async def test_reading_is_not_paused_in_a_loop_that_reads_once() -> None:
    guest = Guest(new_server())
    await guest.greet()
    message = publishing(1, "q", b"x" * 1000)
    guest.feed((message * (READ_BUFFER_BYTES // len(message) + 1))[:READ_BUFFER_BYTES])
    assert is_read(guest)


@in_the_loop
async def test_nothing_is_done_to_a_transport_that_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A peer vanishes while there is something for it, or something of it to be done."""
    server = new_server()
    publisher, consumer, talker = Guest(server), Guest(server), Guest(server)
    for each in (publisher, consumer, talker):
        await each.greet()
    await consumer.call(QueueDeclare("q"), BasicConsume("q", no_ack=True))
    publisher.feed(publishing(1, "q", b"x"))
    consumer.wire.close()
    talker.send(*[(1, QueueDeclare(f"q{i}")) for i in range(1000)])
    assert talker.protocol.session.has_input
    talker.wire.close()
    await turns(10)
    assert caplog.text == ""
    assert server.connections == {publisher.protocol}


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────


@in_the_loop
async def test_close_is_answered_and_the_socket_closes() -> None:
    guest = Guest(new_server())
    await guest.greet()
    assert await guest.call(ConnectionClose(), channel=0) == [ConnectionCloseOk()]
    assert guest.wire.ended
    assert await guest.call(QueueDeclare("q")) == []
    assert not guest.wire.aborted
    await skip(5)
    assert guest.protocol.transport.is_closing()


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
    new_queue = QueueDeclare("q", arguments={"x-expires": 100_000})
    polite, deaf, full = (Guest(server) for _ in range(3))
    sealed = Guest(server, half_close=False)  # by TLS
    for guest in (polite, deaf, full, sealed):
        await guest.greet()
    await polite.call(new_queue)
    full.wire.unsent = 10
    stopping = asyncio.ensure_future(server.stop())
    await turns()
    for guest in (polite, deaf, full, sealed):
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
    assert sealed.wire.aborted, "or it would be waited for, up to half a minute"


@in_the_loop
async def test_stopping_does_not_wait_for_disconnected_clients() -> None:
    server = new_server()
    guest = Guest(server)
    await guest.greet()
    stopping = asyncio.ensure_future(server.stop())
    await turns()
    guest.wire.close()
    await turns()
    assert stopping.done()


@in_the_loop
async def test_an_end_of_file_is_an_end() -> None:
    guest = Guest(new_server())
    guest.feed(PROTOCOL_HEADER)
    await turns()
    (start,) = guest.methods()
    assert isinstance(start, ConnectionStart)
    assert not guest.protocol.eof_received()
