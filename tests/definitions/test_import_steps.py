"""An import runs in bounded steps, between which clients are served, and nothing that they do makes it fail."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from recado.amqp import methods as m
from recado.amqp.events import MethodReceived
from recado.amqp.frames import encode_method_frame
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.limits import VhostLimits
from recado.broker.queue import Queue
from recado.broker.steps import run_to_completion
from recado.broker.store import MessageStore
from recado.broker.vhost import VhostSettings
from recado.definitions import trial
from recado.definitions.document import DefinitionsError
from recado.definitions.exporter import export_definitions
from recado.definitions.importer import PART_UNITS_MAX, DefinitionsImport, import_definitions
from tests.server.client import Client
from tests.server.client import new_broker as new_broker_with_guest

from .documents import EVERYTHING, binding, exchange, many, new_broker, policy, queue


class Counting(MessageStore):
    """Counts the changes since the last look."""

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self.kept: dict[tuple[str, str, str], bytes | None] = {}

    def exchange_declared(self, vhost: str, exchange: object) -> None:
        self.changes["topology"] += 1

    def queue_declared(self, queue: Queue) -> None:
        self.changes["topology"] += 1

    def binding_added(self, vhost: str, binding: object) -> None:
        self.changes["topology"] += 1

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        self.changes["metadata"] += 1
        self.kept[kind, vhost, name] = value

    def take(self) -> Counter[str]:
        changes, self.changes = self.changes, Counter()
        return changes


def steps(work: DefinitionsImport, budget: int = PART_UNITS_MAX) -> Iterator[int]:
    """Yield the cost of each turn."""
    while not work.is_done:
        yield work.advance(budget, 0)


def run(work: DefinitionsImport) -> None:
    for _ in steps(work):
        pass


def until_applied(work: DefinitionsImport, broker: Broker, name: str = "q0") -> None:
    """Run until a queue exists."""
    while name not in broker.vhosts["/"].queues:
        work.advance(1, 0)


# ── cost ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_work_of_each_turn_is_bounded() -> None:
    """DI4, for 20,000 queues with their bindings: in units, and in what is done to the broker."""
    store = Counting()
    broker = new_broker(store)
    text = json.dumps(many(20_000)).encode()
    work, most, costs = DefinitionsImport(broker, text), Counter[str](), list[int]()
    for cost in steps(work):
        costs.append(cost)
        most |= store.take()
    assert len(broker.vhosts["/"].queues) == broker.vhosts["/"].binding_count == 20_000
    assert max(costs) <= 2 * PART_UNITS_MAX + trial.OBJECTS_PER_STEP
    assert most["topology"] <= 64
    assert most["metadata"] <= 64
    assert len(costs) > 1_000
    assert not broker.definitions_locked
    assert not broker.vhosts["/"].reserved


def test_expensive_bindings_fill_a_part_sooner() -> None:
    store = Counting()
    broker = new_broker(store)
    bindings = [binding("x", "q", routing_key=f"^{n}") for n in range(100)]
    document = {"exchanges": [exchange("x", "regex")], "queues": [queue("q")], "bindings": bindings}
    work, most = DefinitionsImport(broker, json.dumps(document).encode()), Counter[str]()
    for _ in steps(work):
        most |= store.take()
    assert broker.vhosts["/"].binding_count == 100
    assert most["topology"] <= 4


def test_arguments_are_compared_with_existing_bindings_in_steps() -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    broker.create_queue(vhost, "q", QueueSettings(), None, 0)
    for number in range(5_000):
        vhost.bind_queue("q", "amq.headers", "", {"a": number})
    bindings = [binding("amq.headers", "q", arguments={"a": number}) for number in (7, 5_000)]
    work = DefinitionsImport(broker, json.dumps({"bindings": bindings}).encode())
    costs = list(steps(work))
    assert vhost.binding_count == 5_001
    assert sum(costs) >= 5_000
    assert max(costs) <= 2 * PART_UNITS_MAX


def test_a_document_that_changes_nothing_is_not_staged() -> None:
    """DI3."""
    store = Counting()
    broker = new_broker(store)
    import_definitions(broker, many(100, policies=[policy("p")], vhosts=[{"name": "v"}]), 0)
    store.take()
    before = export_definitions(broker)
    import_definitions(broker, before, 0)
    assert export_definitions(broker) == before
    assert store.take() == Counter(metadata=2)  # the marker


# ── other clients ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def broker() -> Broker:
    return new_broker_with_guest()


def answers(client: Client) -> list[m.Method]:
    client.session.process_input(0)
    return [each.method for each in client.received() if isinstance(each, MethodReceived)]


def refused(answered: list[m.Method]) -> str:
    (closed,) = answered
    assert isinstance(closed, m.ChannelClose)
    return closed.reply_text


def send(client: Client, method: m.Method) -> list[m.Method]:
    client.session.receive(encode_method_frame(1, method), 0)
    return answers(client)


def test_clients_are_served_between_the_steps(broker: Broker) -> None:
    client = Client(broker)
    served = 0
    for _ in steps(DefinitionsImport(broker, many(200))):
        assert send(client, m.QueueDeclare(f"other{served}")) == [
            m.QueueDeclareOk(f"other{served}", 0, 0)
        ]
        served += 1
    assert served > 10


def test_a_declaration_of_the_same_name_waits_for_the_import(broker: Broker) -> None:
    same, other, late = Client(broker), Client(broker), Client(broker)
    document = many(200, exchanges=[exchange("x")])
    work = DefinitionsImport(broker, document)
    while ("queue", "q199") not in broker.vhosts["/"].reserved:
        work.advance(1, 0)
    assert send(same, m.QueueDeclare("q199", durable=True)) == []
    assert send(other, m.QueueDeclare("q199")) == []
    assert send(late, m.ExchangeDeclare("x", "fanout")) == []
    until_applied(work, broker)
    assert "q199" not in broker.vhosts["/"].queues
    assert answers(same) == answers(other) == []
    run(work)
    assert answers(same) == [m.QueueDeclareOk("q199", 0, 0)]
    assert "inequivalent arg 'durable' for queue 'q199'" in refused(answers(other))
    assert "inequivalent arg 'type' for exchange 'x'" in refused(answers(late))
    assert broker.vhosts["/"].binding_count == 200


def test_a_declaration_waits_for_an_import_that_fails(broker: Broker) -> None:
    client = Client(broker)
    wrong = queue("wrong", arguments={"x-max-length": -1})
    work = DefinitionsImport(broker, {"queues": [queue("q"), wrong]})
    while ("queue", "q") not in broker.vhosts["/"].reserved:
        work.advance(1, 0)
    assert send(client, m.QueueDeclare("q")) == []
    with pytest.raises(DefinitionsError):
        run(work)
    assert answers(client) == [m.QueueDeclareOk("q", 0, 0)]
    assert not broker.vhosts["/"].queues["q"].settings.durable
    assert not broker.vhosts["/"].reserved


def test_a_deletion_of_the_same_name_waits_for_the_import(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    broker.create_queue(vhost, "old", QueueSettings(durable=True), None, 0)
    vhost.declare_exchange("x", "fanout", durable=True)
    queues, exchanges = Client(broker), Client(broker)
    bindings = [binding("x", "old"), binding("x", "q0")]
    document = many(100, exchanges=[exchange("x", "fanout")])
    document["bindings"] += bindings
    work = DefinitionsImport(broker, document)
    until_applied(work, broker)
    assert send(queues, m.QueueDelete("old")) == []
    assert send(exchanges, m.ExchangeDelete("x")) == []
    assert {"old", "x"} <= {*vhost.queues, *vhost.exchanges}
    run(work)
    assert answers(queues) == [m.QueueDeleteOk(0)]
    assert answers(exchanges) == [m.ExchangeDeleteOk()]
    assert not {"old", "x"} & {*vhost.queues, *vhost.exchanges}
    broker.check()


def test_other_names_do_not_wait(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    broker.create_queue(vhost, "old", QueueSettings(), None, 0)
    client = Client(broker)
    work = DefinitionsImport(broker, many(100))
    until_applied(work, broker)
    assert send(client, m.QueueDeclare("q0", durable=True)) == [m.QueueDeclareOk("q0", 0, 0)]
    assert send(client, m.QueueBind("q0", "amq.direct", "k")) == [m.QueueBindOk()]
    assert send(client, m.QueueDelete("old")) == [m.QueueDeleteOk(0)]
    run(work)
    assert vhost.binding_count == 101


def test_a_queue_that_expires_during_the_import_is_gone_with_its_bindings(broker: Broker) -> None:
    """DI1: as if it had expired after the import."""
    vhost = broker.vhosts["/"]
    old = broker.create_queue(vhost, "old", QueueSettings(durable=True), None, 0)
    document = many(100)
    document["bindings"].append(binding("amq.fanout", "old"))
    client = Client(broker)
    work = DefinitionsImport(broker, document)
    until_applied(work, broker)
    broker.delete_queue(old, 0)
    assert send(client, m.QueueDeclare("old", durable=True)) == []
    run(work)
    assert answers(client) == [m.QueueDeclareOk("old", 0, 0)]
    assert not vhost.exchanges["amq.fanout"].bindings
    broker.check()


def test_an_exchange_that_would_be_auto_deleted_is_bound_again(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("x", "fanout", durable=True, auto_delete=True)
    broker.create_queue(vhost, "only", QueueSettings(), None, 0)
    vhost.bind_queue("only", "x", "k")
    client = Client(broker)
    document = many(100, exchanges=[exchange("x", "fanout", auto_delete=True)])
    document["bindings"].append(binding("x", "q0"))
    work = DefinitionsImport(broker, document)
    until_applied(work, broker)
    assert send(client, m.QueueUnbind("only", "x", "k")) == [m.QueueUnbindOk()]
    assert "x" in vhost.exchanges
    run(work)
    assert len(vhost.exchanges["x"].bindings) == 1
    broker.check()


def test_a_name_that_is_being_deleted_is_imported_when_it_is_free(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("x", "fanout")
    broker.create_queue(vhost, "q", QueueSettings(), None, 0)
    for number in range(5_000):
        vhost.bind_queue("q", "x", f"{number}")
    vhost.delete_exchange("x")
    assert vhost.is_deleting("exchange", "x")
    costs = list(steps(DefinitionsImport(broker, {"exchanges": [exchange("x", "topic")]})))
    assert max(costs) <= 2 * PART_UNITS_MAX
    assert sum(costs) >= 5_000 // 2
    assert vhost.exchanges["x"].settings.exchange_type == "topic"


def test_names_are_reserved_in_a_vhost_that_the_import_adds(broker: Broker) -> None:
    queues = [queue(f"q{number}", vhost="new") for number in range(100)]
    permissions = [{"user": "guest", "vhost": "new", **EVERYTHING}]
    document = {"vhosts": [{"name": "new"}], "permissions": permissions, "queues": queues}
    work = DefinitionsImport(broker, document)
    while "new" not in broker.vhosts or "q0" not in broker.vhosts["new"].queues:
        work.advance(1, 0)
    assert broker.vhosts["new"].must_wait_to_declare("queue", "q99")
    assert not broker.vhosts["new"].must_wait_to_declare("queue", "other")
    run(work)
    assert len(broker.vhosts["new"].queues) == 100
    assert not broker.vhosts["new"].reserved


def test_what_an_import_refers_to_may_be_deleted_during_it(broker: Broker) -> None:
    """Over HTTP such changes wait; here nothing makes them wait."""
    broker.add_vhost("old")
    names = [f"q{number}" for number in range(40)]
    document = {
        "global_parameters": [{"name": name, "value": 1} for name in names],  # the first part
        "users": [{"name": "ana", "password": "secret"}],
        "queues": [queue(name) for name in names] + [queue(name, vhost="old") for name in names],
        "exchanges": [exchange("x", vhost="old")],
        "policies": [policy("p", vhost="old")],
        "permissions": [{"user": "guest", "vhost": "old", **EVERYTHING}],
        "topic_permissions": [
            {"user": "ana", "vhost": "old", "exchange": "x", "write": "", "read": ""}
        ],
    }
    settings: dict[str, Any] = {"metadata": {"description": "d"}}
    work = DefinitionsImport(broker, document | {"vhosts": [{"name": "/", **settings}]})
    store = Counting()
    broker.store = store
    while ("import", "", "committed") not in store.kept:
        work.advance(1, 0)
    del broker.vhosts["old"], broker.users["guest"]
    run(work)
    assert len(broker.vhosts["/"].queues) == 40
    assert broker.vhosts["/"].settings.description == "d"
    assert broker.users["ana"].topic_permissions == {}
    assert "guest" not in broker.users


def test_a_bug_does_not_leave_an_import_unfinished(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create = broker.create_queue

    def create_most(vhost: Any, name: str, *arguments: Any) -> Queue:
        if name == "q1":
            raise ZeroDivisionError
        return create(vhost, name, *arguments)

    monkeypatch.setattr(broker, "create_queue", create_most)
    import_definitions(broker, many(3), 0)
    assert list(broker.vhosts["/"].queues) == ["q0", "q2"]
    assert "definition not imported: internal error (entry=queues[1] ('q1'))" in caplog.text


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_import_is_refused(broker: Broker) -> None:
    first = DefinitionsImport(broker, many(10))
    with pytest.raises(DefinitionsError, match="another import of definitions is in progress"):
        import_definitions(broker, many(20), 0)
    run(first)
    import_definitions(broker, many(20), 0)
    assert len(broker.vhosts["/"].queues) == 20


@pytest.mark.parametrize("text", [b"{", b"[]", b"", b'{"queues": 1}', b'{"queues": [NaN]}'])
def test_a_document_that_is_none_changes_nothing(broker: Broker, text: bytes) -> None:
    with pytest.raises(DefinitionsError):
        run(DefinitionsImport(broker, text))
    assert not broker.definitions_locked


def test_the_steps_of_a_failed_import_are_bounded_as_well() -> None:
    store = Counting()
    broker = new_broker(store)
    document = many(5_000)
    document["exchanges"] = [exchange("x", "regex")]
    document["bindings"].append(binding("x", "q0", routing_key="("))
    work, costs = DefinitionsImport(broker, json.dumps(document).encode()), list[int]()
    with pytest.raises(DefinitionsError, match=r"bindings\[5000\]"):
        costs.extend(steps(work))
    assert store.take() == Counter()
    assert not broker.vhosts["/"].queues
    assert not broker.vhosts["/"].reserved
    assert max(costs) <= 2 * PART_UNITS_MAX + trial.OBJECTS_PER_STEP


def test_limits_count_what_the_document_adds(broker: Broker) -> None:
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_queues=150)))
    with pytest.raises(DefinitionsError, match="adding 151 to vhost '/' would exceed its limit"):
        import_definitions(broker, many(151), 0)
    import_definitions(broker, many(150), 0)
    assert len(broker.vhosts["/"].queues) == 150


def test_limits_count_what_an_import_has_still_to_add(broker: Broker) -> None:
    """Also for other clients, while it is applied."""
    vhost = broker.vhosts["/"]
    limits = VhostLimits(max_queues=101, max_bindings=101)
    broker.configure_vhost("/", VhostSettings(limits=limits))
    broker.create_queue(vhost, "old", QueueSettings(), None, 0)
    client = Client(broker)
    work = DefinitionsImport(broker, many(100))
    until_applied(work, broker)
    assert send(client, m.QueueBind("old", "amq.fanout", "k")) == [m.QueueBindOk()]
    assert "binding limit" in refused(send(client, m.QueueBind("old", "amq.fanout", "l")))
    assert "queue limit" in refused(send(Client(broker), m.QueueDeclare("other")))
    run(work)
    assert (len(vhost.queues), vhost.binding_count) == (101, 101)
    assert vhost.pending_queue_count == vhost.pending_binding_count == 0


def test_limits_are_checked_again_at_the_end_of_the_trial(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_bindings=100)))
    broker.create_queue(vhost, "old", QueueSettings(), None, 0)
    work = DefinitionsImport(broker, many(100))
    while ("queue", "q99") not in vhost.reserved:
        work.advance(1, 0)
    vhost.bind_queue("old", "amq.fanout", "k")
    with pytest.raises(
        DefinitionsError, match="adding 100 to vhost '/' would exceed its limit of 100"
    ):
        run(work)
    assert vhost.binding_count == 1
    with pytest.raises(DefinitionsError, match=r"binding limit in vhost '/' \(100\) is reached"):
        import_definitions(broker, many(100), 0)
    import_definitions(broker, many(99), 0)
    assert vhost.binding_count == 100


def test_a_password_is_not_staged() -> None:
    store = Counting()
    broker = new_broker(store)
    users = [{"name": "ana", "password": "very secret", "tags": "administrator"}]
    work = DefinitionsImport(broker, json.dumps({"users": users}).encode())
    parts = []
    for _ in steps(work, 1):
        parts.append(store.kept.get(("import", "", "00000000")))
    staged = next(part for part in parts if part)
    assert b"secret" not in staged
    assert broker.users["ana"].password_hash.encode() in staged
    assert broker.users["ana"].tags == ("administrator",)


def test_values_that_json_does_not_have_are_refused(broker: Broker) -> None:
    for wrong in ({"extra": object()}, {"extra": "\ud800"}, {"arguments": {"a": float("inf")}}):
        with pytest.raises(DefinitionsError, match=r"queues\[0\]"):
            import_definitions(broker, {"queues": [queue("q", **wrong)]}, 0)
    assert "q" not in broker.vhosts["/"].queues


def test_unfinished_work_of_a_trial_is_released(broker: Broker) -> None:
    tried = trial.ImportTrial(broker, reserve=True)
    assert run_to_completion(tried.release()) is None
