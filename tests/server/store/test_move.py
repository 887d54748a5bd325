"""Move and replay while the power fails, at every moment: no message is lost, and none is in two queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bench.powerloss.machine import Machine, PowerLost
from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable
from recado.broker.arguments import parse_queue_arguments
from recado.broker.checks import StreamOffset
from recado.broker.message_filter import MessageFilter
from recado.broker.move import MoveProgress, move
from recado.broker.priority_bucket import ReadLimits
from recado.broker.queue import Queue
from recado.broker.ready_messages import StreamMessages
from recado.broker.replay import ReplayProgress, replay
from recado.broker.stream import Stream
from recado.broker.work_queue import WorkQueue
from recado.journal.journal import Journal
from recado.server.store.compaction import Compactor
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from ...broker.stage import new_broker, open_channel, published

# Every line that these reach has tests of its own: see tests/conftest.py.
pytestmark = pytest.mark.no_cover

SENT = [b"%03d" % i * 150 for i in range(16)]
CHOSEN = "offset < 6 OR offset > 8"


class Node:
    """A broker on a machine, with small segments."""

    def __init__(self, machine: Machine, room: int = 1 << 30) -> None:
        journal = Journal(machine.journal, segment_bytes=8000)
        self.store = JournalStore(journal, machine, page_out_bytes=room)
        self.broker = new_broker(self.store)
        restore_broker(self.store, self.broker, 0)
        self._compactor = Compactor(self.store, slice_bytes=500, garbage_segments_min=0)

    def declare(self, name: str, **arguments: object) -> Queue:
        table: FieldTable = {
            f"x-{key.replace('_', '-')}": value  # type: ignore[misc]
            for key, value in arguments.items()
        }
        settings = parse_queue_arguments(
            name, "/", durable=True, exclusive=False, auto_delete=False, arguments=table
        )
        return self.broker.create_queue(self.broker.vhosts["/"], name, settings, None, 0)

    def publish(self, key: str, *bodies: bytes) -> None:
        headers: FieldTable = {"x-death": [{"queue": "to"}]}
        event = published(key, *bodies, properties=Properties(delivery_mode=2, headers=headers))
        open_channel(self.broker).publisher.publish(event, 0)

    def sync(self) -> None:
        self.store.write()
        sync = self.store.begin_sync()
        sync.run()
        self.store.end_sync(sync)
        self._compactor.compact()

    def bodies(self, name: str) -> list[bytes]:
        """Return the messages of a queue, and remove them unless it is a stream."""
        queue = self.broker.vhosts["/"].queues[name]
        if isinstance(queue, Stream):
            reader = StreamMessages(queue, StreamOffset("first"), 0)
            runs = [run for portion in iter(reader.read, None) for run in portion.runs]
        else:
            runs = list(iter(lambda: queue.get(0), None))
        return [extract_body(content) for run in runs for content in run.contents()]


def scenario(machine: Machine, kind: str, room: int, text: str | None) -> Iterator[str]:
    """Yield what has just become durable."""
    node = Node(machine, room)
    node.declare("q")
    destination = node.declare("to", queue_type="classic" if kind == "replayed" else kind)
    for body in SENT:
        node.publish("q", body)
    node.sync()
    yield "sent"
    source = node.broker.vhosts["/"].queues["q"]
    assert isinstance(source, WorkQueue)
    chosen = None if text is None else MessageFilter(text)
    if kind == "replayed":
        steps = replay(source, ReplayProgress(), lambda name: True, message_filter=chosen)
    else:
        steps = move(source, destination, MoveProgress(), message_filter=chosen)
    for number, _ in enumerate(steps):
        if number % 2:
            node.sync()
    node.sync()
    node.sync()  # the messages leave the source when they are durable in a stream
    yield "moved"


@pytest.mark.parametrize(
    ("kind", "room", "text"),
    [
        ("classic", 0, None),
        ("classic", 0, CHOSEN),
        ("classic", 1 << 30, None),
        ("quorum", 1 << 30, CHOSEN),
        ("replayed", 0, CHOSEN),
        ("stream", 0, CHOSEN),
        ("stream", 1 << 30, None),
    ],
)
def test_the_power_fails_at_every_moment(
    kind: str, room: int, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("move", "replay"):
        monkeypatch.setattr(f"recado.broker.{module}.BATCH_LIMITS", ReadLimits(4, 1 << 20, 4))
    chosen = [body for i, body in enumerate(SENT) if text is None or not 6 <= i <= 8]
    moments = count_moments(lambda machine: scenario(machine, kind, room, text))
    duplicated = 0
    for moment in range(moments + 1):
        machine = Machine(moment)
        machine.limit = moment
        done = set()
        try:
            for event in scenario(machine, kind, room, text):
                done.add(event)
        except PowerLost:
            pass
        node = Node(machine.after_power_loss(), room)
        if not done:
            continue
        left, there = node.bodies("q"), node.bodies("to")
        assert left == [body for body in SENT if body in left], moment
        assert there == [body for body in chosen if body in there], moment
        assert set(left) | set(there) == set(SENT), moment
        duplicated += len(set(left) & set(there))
        if "moved" in done:
            assert there == chosen
            assert left == [body for body in SENT if body not in chosen]
    assert moments > 15
    assert kind == "stream" or not duplicated


def count_moments(start: Callable[[Machine], Iterator[str]]) -> int:
    machine = Machine(0)
    assert list(start(machine)) == ["sent", "moved"]
    return machine.operations
