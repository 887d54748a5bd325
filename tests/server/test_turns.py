"""The order within a turn of the loop: coalesced messages while a sync begins or ends, whose publishers wait for
the next one; and deliveries, while the journal is written."""

import threading
from collections.abc import Callable

import pytest

from recado.amqp.frames import encode_method_frame
from recado.amqp.methods import (
    BasicConsume,
    BasicQos,
    ConfirmSelect,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from recado.amqp.properties import Properties
from recado.broker.steps import TURN_UNITS_MAX
from recado.journal.journal import Journal
from recado.server import committer as module
from recado.server.committer import Committer
from recado.server.server import DurabilityWaiter
from recado.server.session import UNITS_PER_METHOD
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from recado.simulator.disk import SimulatedDisk

from .client import new_broker, publishing
from .harness import GUEST, Guest, in_the_loop, new_server, soon, turns

THREAD, AT_ONCE = 0.0, 100.0  # how long a sync may take to be made at once, in seconds


class Stage:
    """A publisher, and a server on a simulated disk whose sync thread cannot notify the loop."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store = JournalStore(Journal(self.disk))
        self.server = new_server(new_broker(GUEST, store=self.store))
        restore_broker(self.store, self.server.broker, 0)
        self.committer = Committer(
            self.store, self.server.loop, self.server.fail, run_in_turn=self.server.run_in_turn
        )
        self.server.attach_committer(self.committer)
        self.guest = Guest(self.server)

    async def open(self) -> None:
        await self.guest.greet()
        self.guest.send((1, QueueDeclare("q", durable=True)), (1, ConfirmSelect()))
        await soon(self.server.wait_until_durable())
        await turns()

    def hold_back(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
        """Return a function that runs the notification of the thread now, instead of in the loop."""
        told = threading.Event()
        kept: list[tuple[Callable[..., object], tuple[object, ...]]] = []

        def keep(callback: Callable[..., object], *args: object) -> None:
            kept.append((callback, args))
            told.set()

        monkeypatch.setattr(self.server.loop, "call_soon_threadsafe", keep)

        def tell() -> None:
            assert told.wait(60)
            callback, args = kept.pop()
            callback(*args)

        return tell

    def publish(self) -> None:
        """While further reads are pending in the same turn, so that the message waits to be coalesced."""
        self.server.loop.call_soon(int)
        self.guest.feed(publishing(1, "q", b"x", Properties(delivery_mode=2)))

    async def reading(self) -> None:
        """Returns once the server reads from the publisher."""
        while not self.guest.wire.reading:
            await turns()

    def confirmed(self) -> int:
        return self.guest.protocol.session.channels[1].publisher.confirmed

    def after_power_loss(self) -> int:
        store = JournalStore(Journal(self.disk.crash(survival_ratio=0.0)))
        broker = new_broker(store=store)
        restore_broker(store, broker, 0)
        return broker.vhosts["/"].queues["q"].ready


@in_the_loop
async def test_a_sync_that_ends_tells_of_nothing_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "INLINE_SYNC_MAX_S", THREAD)
    stage = Stage()
    await stage.open()
    tell = stage.hold_back(monkeypatch)
    stage.store.set_metadata("a", "", "fact", b"1")
    stage.committer.maintain()
    stage.publish()
    tell()
    monkeypatch.undo()
    assert stage.confirmed() == 0
    await turns()
    await soon(stage.server.wait_until_durable())
    assert stage.confirmed() == stage.after_power_loss() == 1
    await stage.server.stop()


@pytest.mark.parametrize("quick", [THREAD, AT_ONCE])
@in_the_loop
async def test_a_background_sync_covers_waiting_operations(
    monkeypatch: pytest.MonkeyPatch, quick: float
) -> None:
    monkeypatch.setattr(module, "INLINE_SYNC_MAX_S", quick)
    stage = Stage()
    await stage.open()
    stage.store.set_metadata("a", "", "fact", b"1")
    stage.publish()
    stage.server.run_in_turn(stage.committer.maintain)
    assert stage.confirmed() <= stage.after_power_loss()
    await soon(stage.server.wait_until_durable())
    assert stage.confirmed() == stage.after_power_loss() == 1
    await stage.server.stop()


@in_the_loop
async def test_only_output_that_the_journal_records_waits_for_it() -> None:
    """Else a message might come again unmarked after a crash."""
    stage = Stage()
    await stage.open()
    lasting, passing = Guest(stage.server), Guest(stage.server)
    await lasting.greet()
    await passing.greet()
    lasting.send((1, BasicConsume("q")), (1, QueueBind("q", "amq.fanout")))
    await soon(stage.server.wait_until_durable())
    await passing.call(
        *(QueueDeclare("t", exclusive=True), QueueBind("t", "amq.fanout"), BasicConsume("t"))
    )
    lasting.received()
    sent = []

    def look(operation: str) -> None:
        if operation == "write":
            sent.append((len(passing.wire.written) > 0, len(lasting.wire.written) > 0))

    stage.disk.on_operation = look
    message = publishing(1, "", b"x", Properties(delivery_mode=2), exchange="amq.fanout")
    stage.guest.feed(message)
    await soon(stage.server.wait_until_durable())
    await turns()
    assert sent[0] == (True, False)
    assert lasting.wire.written
    await stage.server.stop()


@in_the_loop
async def test_publishes_read_during_writes_are_flushed_before_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A guest with more to say than fits into a turn goes on when its answers are taken."""
    monkeypatch.setattr(module, "INLINE_SYNC_MAX_S", AT_ONCE)
    stage = Stage()
    await stage.open()
    request, kept = stage.committer.commit, []

    def requested() -> None:
        request()
        kept.append(stage.confirmed() <= stage.after_power_loss())

    monkeypatch.setattr(stage.committer, "commit", requested)
    asked = encode_method_frame(1, BasicQos(prefetch_count=1)) * (
        TURN_UNITS_MAX // UNITS_PER_METHOD
    )
    stage.server.loop.call_soon(int)
    stage.guest.feed(asked + publishing(1, "q", b"x", Properties(delivery_mode=2)))
    assert stage.guest.protocol.session.has_input
    stage.store.set_metadata("a", "", "fact", b"1")
    stage.store.notify_when_durable(DurabilityWaiter(stage.server.loop))
    await turns()
    await soon(stage.server.wait_until_durable())
    assert all(kept)
    assert stage.confirmed() == stage.after_power_loss() == 1
    await stage.server.stop()


@in_the_loop
async def test_no_input_is_resumed_before_all_output_is_written() -> None:
    """Output that resumed input causes for another connection is not in the journal yet."""
    stage = Stage()
    await stage.open()
    both = Guest(stage.server)
    await both.greet()
    await both.call(QueueDeclare("t", exclusive=True), QueueBind("t", "amq.fanout"))
    await both.call(BasicConsume("t"), BasicConsume("q"))
    both.received()
    seen = []

    def look(operation: str) -> None:
        if operation == "write":
            seen.append(both.wire.written)

    stage.disk.on_operation = look
    asked = encode_method_frame(1, BasicQos(prefetch_count=1))
    stage.guest.feed(
        asked
        + publishing(1, "", b"passing", exchange="amq.fanout")
        + asked * (TURN_UNITS_MAX // UNITS_PER_METHOD)
        + publishing(1, "q", b"lasting", Properties(delivery_mode=2))
    )
    await soon(stage.server.wait_until_durable())
    await turns()
    assert b"passing" in seen[0]
    assert b"lasting" not in seen[0]
    assert b"lasting" in both.wire.written
    await stage.server.stop()


@in_the_loop
@pytest.mark.parametrize("quick", [THREAD, AT_ONCE])
async def test_pipelined_declarations_take_few_syncs(
    monkeypatch: pytest.MonkeyPatch, quick: float
) -> None:
    monkeypatch.setattr(module, "INLINE_SYNC_MAX_S", quick)
    stage = Stage()
    await stage.open()
    stage.guest.received()
    syncs, count = stage.committer.sync_count, 5000
    data = b"".join(
        encode_method_frame(1, QueueDeclare(f"q{i}", durable=True)) for i in range(count)
    )
    for at in range(0, len(data), 100_000):
        await soon(stage.reading())
        stage.guest.feed(data[at : at + 100_000])
    await soon(stage.reading())
    await soon(stage.server.wait_until_durable())
    await turns()
    replies = stage.guest.methods()
    assert replies == [QueueDeclareOk(f"q{i}", 0, 0) for i in range(count)]
    assert stage.committer.sync_count - syncs <= count * UNITS_PER_METHOD // TURN_UNITS_MAX + 10
    await stage.server.stop()
