"""The recorded topology (CTP1, CTP2)."""

from recado.amqp import methods as m
from recado.client.topology import OLD_NAME_MAX_COUNT, Topology

OK = m.ExchangeDeclareOk()


def with_bindings() -> Topology:
    topology = Topology()
    topology.record(m.ExchangeDeclare("x", "topic", durable=True), OK)
    topology.record(m.ExchangeDeclare("y", "fanout", auto_delete=True), OK)
    topology.record(m.QueueDeclare("q", durable=True), m.QueueDeclareOk("q"))
    topology.record(m.QueueDeclare(exclusive=True), m.QueueDeclareOk("gen-1"))
    topology.record(m.ExchangeBind("x", "y"), m.ExchangeBindOk())
    topology.record(m.QueueBind("q", "x", "a"), m.QueueBindOk())
    topology.record(m.QueueBind("gen-1", "x", "#", arguments={"n": 1}), m.QueueBindOk())
    return topology


def test_all_is_remembered_in_order() -> None:
    topology = with_bindings()
    assert list(topology.exchanges) == ["x", "y"]
    assert {name: each.named_by_broker for name, each in topology.queues.items()} == {
        "q": False,
        "gen-1": True,
    }
    assert topology.bindings == [
        m.ExchangeBind("x", "y"),
        m.QueueBind("q", "x", "a"),
        m.QueueBind("gen-1", "x", "#", arguments={"n": 1}),
    ]


def test_twice_is_once() -> None:
    topology = with_bindings()
    topology.record(m.QueueDeclare("gen-1", exclusive=True), m.QueueDeclareOk("gen-1"))
    topology.record(m.QueueBind("q", "x", "a"), m.QueueBindOk())
    assert topology.queues["gen-1"].named_by_broker
    assert len(topology.bindings) == 3


def test_looking_declares_nothing() -> None:
    topology = Topology()
    topology.record(m.ExchangeDeclare("x", passive=True), OK)
    topology.record(m.QueueDeclare("q", passive=True), m.QueueDeclareOk("q"))
    topology.record(m.QueuePurge("q"), m.QueuePurgeOk(1))
    assert (topology.exchanges, topology.queues) == ({}, {})


def test_what_is_deleted_is_forgotten_with_its_bindings() -> None:
    topology = with_bindings()
    topology.record(m.QueueDelete("q"), m.QueueDeleteOk(0))
    assert m.QueueBind("q", "x", "a") not in topology.bindings
    topology.record(m.ExchangeDelete("x"), m.ExchangeDeleteOk())
    assert topology.bindings == []
    assert topology.exchanges == {}  # y is auto-delete and has no binding any more


def test_an_unbinding_undoes_only_its_binding() -> None:
    topology = with_bindings()
    topology.record(m.QueueUnbind("gen-1", "x", "#"), m.QueueUnbindOk())  # other arguments
    assert len(topology.bindings) == 3
    topology.record(m.QueueUnbind("gen-1", "x", "#", arguments={"n": 1}), m.QueueUnbindOk())
    assert len(topology.bindings) == 2
    assert "x" in topology.exchanges


def test_an_auto_delete_exchange_goes_with_its_last_binding() -> None:
    topology = with_bindings()
    topology.record(m.ExchangeUnbind("x", "y"), m.ExchangeUnbindOk())
    assert list(topology.exchanges) == ["x"]


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    topology = with_bindings()
    topology.record(m.QueueDeclare("auto", auto_delete=True), m.QueueDeclareOk("auto"))
    topology.record(m.QueueBind("auto", "x"), m.QueueBindOk())
    topology.record_last_consumer_removed("q")
    topology.record_last_consumer_removed("unknown")
    assert "q" in topology.queues
    topology.record_last_consumer_removed("auto")
    assert "auto" not in topology.queues
    assert m.QueueBind("auto", "x") not in topology.bindings


def test_a_name_that_the_broker_gave_means_the_same_queue_while_there_is_one() -> None:
    topology = with_bindings()
    topology.record_rename("gen-1", "gen-2")
    topology.record_rename("gen-2", "gen-3")
    assert list(topology.queues) == ["q", "gen-3"]
    assert [topology.current_name(name) for name in ("gen-1", "gen-2", "gen-3", "q")] == [
        "gen-3",
        "gen-3",
        "gen-3",
        "q",
    ]
    assert topology.bindings[2] == m.QueueBind("gen-3", "x", "#", arguments={"n": 1})
    assert topology.resolve_queue_name(m.BasicGet("gen-1")) == m.BasicGet("gen-3")
    assert topology.resolve_queue_name(m.BasicGet("q")) == m.BasicGet("q")
    topology.record(topology.resolve_queue_name(m.QueueDelete("gen-1")), m.QueueDeleteOk(0))
    assert list(topology.queues) == ["q"]
    assert topology.current_name("gen-1") == "gen-1", "what there is no more has no other name"


def test_names_do_not_become_more_for_ever() -> None:
    topology = with_bindings()
    topology.record(m.QueueDeclare(exclusive=True), m.QueueDeclareOk("other-1"))
    topology.record_rename("other-1", "other-2")
    for number in range(1, 1_000):
        topology.record_rename(f"gen-{number}", f"gen-{number + 1}")
    names = [f"gen-{number}" for number in range(1, 1_001)]
    known = [name for name in names if topology.current_name(name) == "gen-1000"]
    assert known == ["gen-1", *names[-OLD_NAME_MAX_COUNT:]]
    assert topology.current_name("other-1") == "other-2"


def test_methods_about_no_queue_stay_as_they_are() -> None:
    topology = with_bindings()
    topology.record_rename("gen-1", "gen-2")
    assert topology.resolve_queue_name(m.ExchangeDelete("gen-1")) == m.ExchangeDelete("gen-1")
