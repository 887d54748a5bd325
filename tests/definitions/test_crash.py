"""A crash during an import leaves all of it or nothing (DI2): at every moment of a simulated disk."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bench.powerloss.machine import Machine, PowerLost
from recado.amqp.errors import AmqpError
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.definitions import importer
from recado.definitions.document import DefinitionsError
from recado.definitions.exporter import export_definitions
from recado.definitions.importer import DefinitionsImport, import_definitions, resume_import
from recado.journal.journal import Journal
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from .documents import EVERYTHING, binding, exchange, new_broker, policy, queue

PARTS = 4
SYNC_INTERVAL_STEPS = 3
SEGMENT_BYTES = 2_000  # so that checkpoints are written during the import
STREAM: dict[str, object] = {"type": "stream"}
BEFORE: dict[str, Any] = {
    "users": [{"name": "ana", "password_hash": "", "tags": "monitoring"}],
    "queues": [queue("old"), queue("gone")],
    "bindings": [binding("amq.topic", "old", routing_key="old")],
    "policies": [policy("p", "^old")],
    "global_parameters": [{"name": "cluster_name", "value": "before"}],
}
DOCUMENT: dict[str, Any] = {
    "users": [{"name": "ana", "password_hash": "", "tags": "administrator"}, {"name": "bob", "password_hash": ""}],
    "vhosts": [{"name": "new", "metadata": {"description": "d", "default_queue_type": "quorum"}}],
    "permissions": [{"user": "bob", "vhost": "new", **EVERYTHING}],
    "topic_permissions": [{"user": "ana", "vhost": "new", "exchange": "x", "write": "", "read": ""}],
    "policies": [policy("p", "^new"), policy("q", vhost="new")],
    "global_parameters": [{"name": "cluster_name", "value": "after"}],
    "exchanges": [
        exchange("x", vhost="new"),
        exchange("late", "x-delayed-message", arguments={"x-delayed-type": "direct"}),
    ],
    "queues": [
        queue("old"), queue("s1", vhost="new", **STREAM), queue("s2", **STREAM),
        *(queue(f"q{number}", vhost="new") for number in range(6)),
    ],
    "bindings": [
        binding("late", "old", routing_key="k"),
        *(binding("x", f"q{number}", vhost="new", routing_key=f"{number}") for number in range(6)),
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "PART_UNITS_MAX", 30)


class Node:
    """A broker on the disks of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        journal = Journal(machine.journal, segment_bytes=SEGMENT_BYTES)
        self.store = JournalStore(journal, machine)
        self.broker = new_broker(self.store)
        restore_broker(self.store, self.broker, 0)
        resume_import(self.broker, 0)

    def write(self) -> None:
        self.store.write()

    def sync(self) -> None:
        self.store.write()
        sync = self.store.begin_sync()
        sync.run()
        self.store.end_sync(sync)

    def export(self) -> dict[str, Any]:
        return without_others(export_definitions(self.broker))


def without_others(exported: dict[str, Any]) -> dict[str, Any]:
    """Return a document without what other clients declare and delete during the import."""
    queues = [each for each in exported["queues"] if each["name"] not in ("other", "gone")]
    order = {
        key: sorted(map(str, value)) for key, value in exported.items() if isinstance(value, list)
    }
    return {**order, "queues": sorted(map(str, queues))}


def run_clients(broker: Broker, step: int) -> None:
    """Declare and delete other queues, and what the import names as far as it is allowed."""
    vhost = broker.vhosts["/"]
    if step % 7 == 3 and "other" not in vhost.queues:
        broker.create_queue(vhost, "other", QueueSettings(durable=True), None, 0)
    if step % 7 == 6 and "other" in vhost.queues:
        broker.delete_queue(vhost.queues["other"], 0)
    if step == 20 and "gone" in vhost.queues:
        broker.delete_queue(vhost.queues["gone"], 0)


def run_import(node: Node) -> None:
    """Run the import, with writes and syncs as at the ends of turns."""
    work, step = DefinitionsImport(node.broker, copy.deepcopy(DOCUMENT)), 0
    while not work.is_done:
        work.advance(1, 0)
        run_clients(node.broker, step)
        step += 1
        if step % SYNC_INTERVAL_STEPS:
            node.write()
        else:
            node.sync()
    node.sync()


def prepared(limit: int | None = None) -> Machine:
    machine = Machine(11)
    node = Node(machine)
    import_definitions(node.broker, BEFORE, 0)
    node.sync()
    machine.operations, machine.limit = 0, limit
    return machine


def exports() -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the definitions before and after the import, and the number of disk operations of a run."""
    machine = prepared()
    node = Node(machine)
    before = node.export()
    run_import(node)
    return before, node.export(), machine.operations


def test_the_import_has_many_moments() -> None:
    before, after, moments = exports()
    assert before != after
    assert moments > 100


@pytest.mark.parametrize("kill", [True, False], ids=["kill", "power loss"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_crash_leaves_all_or_nothing(part: int, kill: bool) -> None:
    before, after, moments = exports()
    found = []
    for moment in range(part, moments, PARTS):
        machine = prepared(moment)
        try:
            run_import(Node(machine))
        except PowerLost:
            machine = machine.after_kill() if kill else machine.after_power_loss()
        node = Node(machine)
        exported = node.export()
        assert exported in (before, after), moment
        found.append(exported == after)
        assert not node.store.metadata.keys() & {
            ("import", "", name) for name in ("committed", "00000000")
        }
        node.broker.check()
        node.sync()
        assert Node(machine.after_kill()).export() == exported, "it stays so"
    assert {*found} == {True, False}
    assert found == sorted(found) or not kill, "a process that is killed later has done more"


def test_a_crash_while_an_import_is_resumed() -> None:
    before, after, moments = exports()
    resumed = 0
    for moment in range(moments // 3, moments, 5):
        interrupted = prepared(moment)
        try:
            run_import(Node(interrupted))
        except PowerLost:
            interrupted = interrupted.after_kill()
        for later in range(0, 60, 4):
            machine = interrupted.copy()
            machine.limit = later
            try:
                node = Node(machine)
                for _ in range(3):
                    node.sync()
                resumed += 1
                break
            except PowerLost:
                machine = machine.after_power_loss()
            assert Node(machine).export() in (before, after), (moment, later)
    assert resumed


def test_a_failed_import_leaves_nothing_on_disk() -> None:
    before, _, _ = exports()
    machine = prepared()
    node = Node(machine)
    wrong = copy.deepcopy(DOCUMENT)
    wrong["bindings"].append(binding("x", "q0", vhost="none"))
    with pytest.raises(DefinitionsError):
        import_definitions(node.broker, wrong, 0)
    assert node.export() == before
    assert machine.list_names() == []
    node.sync()
    assert Node(machine.after_kill()).export() == before


def test_an_import_that_finds_no_space_for_a_stream_changes_nothing() -> None:
    before, after, _ = exports()
    machine = prepared()
    node = Node(machine)
    opened = machine.open

    def open_first(name: str) -> Any:
        disk = opened(name)
        if len(machine.list_names()) == 2:
            raise OSError(28, "No space left on device")
        return disk

    machine.open = open_first  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space left"):
        import_definitions(node.broker, DOCUMENT, 0)
    assert node.export() == before
    assert machine.list_names() == []
    machine.open = opened  # type: ignore[method-assign]
    import_definitions(node.broker, DOCUMENT, 0)
    assert node.export() == after
    node.sync()
    assert Node(machine.after_kill()).export() == after


def test_reserved_names_cannot_be_declared_differently_meanwhile() -> None:
    """What bypasses the reservation is refused by the import later, and reported, and the rest is imported."""
    node = Node(prepared())
    work = DefinitionsImport(node.broker, copy.deepcopy(DOCUMENT))
    while "new" not in node.broker.vhosts:
        work.advance(1, 0)
    vhost = node.broker.vhosts["new"]
    assert vhost.must_wait_to_declare("queue", "q5")
    node.broker.create_queue(vhost, "q5", QueueSettings(durable=True, auto_delete=True), None, 0)
    while not work.is_done:
        work.advance(1, 0)
    assert vhost.queues["q5"].settings.auto_delete
    assert len(vhost.queues) == 7
    with pytest.raises(AmqpError):
        vhost.find_equivalent_queue("q5", QueueSettings(durable=True), None)
