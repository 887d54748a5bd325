"""Traces of routes: they end in the queues to which a message is routed, and say why."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable, Int64
from recado.broker import route_trace
from recado.broker.broker import Broker
from recado.broker.queue import Queue
from recado.broker.route_search import find_queues
from recado.broker.route_trace import DUPLICATE, RouteTrace, trace_route
from recado.broker.steps import STEP_UNITS_MAX, run_to_completion
from recado.broker.vhost import Vhost

from .stage import new_broker, new_queue, open_channel, published


@pytest.fixture
def vhost(broker: Broker) -> Vhost[Queue]:
    for name in ("q", "r"):
        new_queue(broker, name)
    return broker.vhosts["/"]


def trace(
    vhost: Vhost[Queue],
    exchange: str,
    key: str = "",
    headers: FieldTable | None = None,
    more_keys: Sequence[str] = (),
    message_id: bytes = b"",
) -> RouteTrace:
    source = vhost.exchanges[exchange]
    return run_to_completion(
        trace_route(vhost, source, key, headers or {}, more_keys, message_id, 1000)
    )


def names(traced: RouteTrace) -> list[str]:
    return [each.queue.name for each in traced.queues]


def test_a_binding_and_its_key(vhost: Vhost[Queue]) -> None:
    vhost.bind_queue("q", "amq.topic", "a.*")
    vhost.bind_queue("r", "amq.topic", "b.*")
    traced = trace(vhost, "amq.topic", "a.b")
    assert names(traced) == ["q"]
    assert traced.unroutable_reason is None
    (exchange,) = traced.exchanges
    (match,) = exchange.matches
    assert (match.destination.name, match.routing_key, match.matched_keys) == ("q", "a.*", ["a.b"])
    assert (exchange.match_count, match.is_fallback) == (1, False)


def test_the_arguments_of_a_headers_exchange(vhost: Vhost[Queue]) -> None:
    arguments: FieldTable = {"x-match": "any", "colour": "red", "size": Int64(3)}
    vhost.bind_queue("q", "amq.headers", "", arguments)
    traced = trace(vhost, "amq.headers", "k", {"colour": "red"})
    (match,) = traced.exchanges[0].matches
    assert (match.arguments, match.matched_keys) == (arguments, ())
    traced = trace(vhost, "amq.headers", "k", {"colour": "blue"})
    assert traced.unroutable_reason == (
        "exchange 'amq.headers': no binding matches, and it has no alternate exchange"
    )


def test_the_default_exchange(vhost: Vhost[Queue]) -> None:
    traced = trace(vhost, "", "q", more_keys=["r", "s", "q"])
    assert names(traced) == ["q", "r"]
    assert traced.keys == ("q", "r", "s")
    assert [each.matched_keys for each in traced.exchanges[0].matches] == [("q",), ("r",)]
    traced = trace(vhost, "", "none")
    assert traced.unroutable_reason == "default exchange: no queue has the name of the routing key"


def test_addresses_of_direct_replies_are_not_revealed(broker: Broker, vhost: Vhost[Queue]) -> None:
    reply = broker.create_reply_queue(vhost, 0)
    assert names(trace(vhost, "", reply.name)) == []


def test_copies_match_by_their_own_keys(vhost: Vhost[Queue]) -> None:
    vhost.bind_queue("q", "amq.direct", "one")
    vhost.bind_queue("q", "amq.direct", "two")
    vhost.bind_queue("r", "amq.direct", "three")
    matches = trace(vhost, "amq.direct", "one", more_keys=["three", "none"]).exchanges[0].matches
    assert [(each.routing_key, each.matched_keys) for each in matches] == [
        ("one", ["one"]),
        ("three", ["three"]),
    ]


def test_a_fallback_binding(vhost: Vhost[Queue]) -> None:
    """Also if one of several keys would match only the fallback."""
    vhost.bind_queue("q", "amq.topic", "a")
    vhost.bind_queue("r", "amq.topic", "#", {"x-dead-letter-binding": True})
    (match,) = trace(vhost, "amq.topic", "other").exchanges[0].matches
    assert (match.destination.name, match.is_fallback) == ("r", True)
    (match,) = trace(vhost, "amq.topic", "a", more_keys=["other"]).exchanges[0].matches
    assert (match.destination.name, match.matched_keys) == ("q", ["a"])


def test_exchanges_that_are_bound_to_exchanges(vhost: Vhost[Queue]) -> None:
    """Each is visited once, and cycles end."""
    for name in ("one", "two", "three"):
        vhost.declare_exchange(name, "fanout")
    for source, destination in (
        ("one", "two"),
        ("one", "three"),
        ("two", "three"),
        ("three", "one"),
    ):
        vhost.bind_exchange(destination, source, "")
    traced = trace(vhost, "one", "k")
    assert traced.unroutable_reason == "the exchanges lead only to each other"
    vhost.bind_queue("q", "three", "")
    traced = trace(vhost, "one", "k")
    assert [each.exchange.name for each in traced.exchanges] == ["one", "two", "three"]
    assert [[match.destination.name for match in each.matches] for each in traced.exchanges] == [
        ["two", "three"],
        ["three"],
        ["one", "q"],
    ]
    assert names(traced) == ["q"]


def test_alternate_exchanges(vhost: Vhost[Queue]) -> None:
    for name, alternate in (("first", "second"), ("second", "gone"), ("third", "third")):
        vhost.declare_exchange(name, "direct", arguments={"alternate-exchange": alternate})
    traced = trace(vhost, "first", "k")
    assert [(each.exchange.name, each.is_alternate) for each in traced.exchanges] == [
        ("first", False),
        ("second", True),
    ]
    assert traced.exchanges[0].alternate == "second"
    assert traced.unroutable_reason == (
        "exchange 'second': no binding matches, and its alternate exchange 'gone' does not exist"
    )
    assert trace(vhost, "third", "k").unroutable_reason == (
        "exchange 'third': no binding matches, and 'third' was reached already"
    )


def test_a_delayed_message_is_traced_as_if_it_were_due(vhost: Vhost[Queue]) -> None:
    vhost.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    vhost.bind_queue("q", "later", "k")
    traced = trace(vhost, "later", "k", {"x-delay": Int64(500)})
    assert (names(traced), traced.exchanges[0].delay_ms) == (["q"], 500)
    assert trace(vhost, "later", "k").exchanges[0].delay_ms == 0


def test_duplicates(broker: Broker, vhost: Vhost[Queue]) -> None:
    """Looking at the ids does not change them."""
    arguments: FieldTable = {"x-message-deduplication": True, "x-cache-ttl": Int64(1000)}
    vhost.declare_exchange("once", "fanout", arguments=arguments)
    vhost.bind_queue("q", "once", "")
    event = published("", b"", exchange="once", properties=Properties(message_id="m"))
    open_channel(broker).publisher.publish(event, 900)
    traced = trace(vhost, "once", message_id=b"m")
    assert traced.unroutable_reason == f"exchange 'once': {DUPLICATE}"
    assert names(trace(vhost, "once", message_id=b"other")) == ["q"]
    window = vhost.exchanges["once"].deduplication_window
    assert window is not None
    assert not window.has(b"m", 1901)
    assert window.has(b"m", 1900)


def test_queues_that_would_refuse_the_message(broker: Broker, vhost: Vhost[Queue]) -> None:
    new_queue(broker, "full", max_length=0, overflow="reject-publish")
    new_queue(broker, "short", max_length=0)
    window = new_queue(broker, "once", deduplication=None)
    for name in ("full", "short", "once"):
        vhost.bind_queue(name, "amq.fanout", "")
    from recado.broker.deduplication import DeduplicationWindow

    window.deduplication_window = DeduplicationWindow(9, None, broker.store, None)
    window.deduplication_window.add(b"m", 0, persistent=False)
    traced = trace(vhost, "amq.fanout", message_id=b"m")
    assert [(each.queue.name, each.refusal) for each in traced.queues] == [
        ("full", "the queue is full and rejects messages (reject-publish)"),
        ("short", None),
        ("once", DUPLICATE),
    ]


def test_long_traces_are_cut(
    broker: Broker, vhost: Vhost[Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_trace, "MATCHES_MAX_COUNT", 5)
    vhost.declare_exchange("more", "fanout")
    vhost.bind_exchange("more", "amq.fanout", "")
    for i in range(4):
        new_queue(broker, f"q{i}")
        vhost.bind_queue(f"q{i}", "amq.fanout", "")
        vhost.bind_queue(f"q{i}", "more", "")
    for i in range(8):
        vhost.declare_exchange(f"dead{i}", "fanout")
        vhost.bind_exchange(f"dead{i}", "amq.direct", "k")
    traced = trace(vhost, "amq.fanout")
    assert [(len(each.matches), each.match_count) for each in traced.exchanges] == [(5, 5), (0, 4)]
    reason = trace(vhost, "amq.direct", "k").unroutable_reason
    assert reason is not None
    assert reason.count("no binding matches") == 5
    assert reason.endswith("; …")


def test_an_exchange_that_is_deleted_meanwhile(vhost: Vhost[Queue]) -> None:
    vhost.declare_exchange("more", "fanout")
    vhost.bind_exchange("more", "amq.fanout", "")
    vhost.bind_queue("q", "amq.fanout", "")
    steps = trace_route(vhost, vhost.exchanges["amq.fanout"], "", {}, (), b"", 0)
    next(steps)
    next(steps)
    vhost.exchanges["more"].deleted = True
    vhost.queues["q"].deleted = True
    result = run_to_completion(steps)
    assert (len(result.exchanges), result.queue_count) == (1, 0)


def test_steps_are_bounded(broker: Broker, vhost: Vhost[Queue]) -> None:
    for i in range(5000):
        new_queue(broker, f"q{i}")
        vhost.bind_queue(f"q{i}", "amq.topic", "#")
    keys = [f"k{i}" for i in range(20)]
    costs = list(trace_route(vhost, vhost.exchanges["amq.topic"], "k", {}, keys, b"", 0))
    assert max(costs) <= 3 * STEP_UNITS_MAX
    assert len(costs) > 50


EXCHANGES = ("one", "two", "three", "amq.direct", "amq.topic", "amq.headers")


@given(
    bindings=st.lists(
        st.tuples(
            st.sampled_from(EXCHANGES),
            st.sampled_from((*EXCHANGES, "q0", "q1", "q2")),
            st.sampled_from(("a", "b", "a.b", "#", "*")),
            st.booleans(),
        ),
        max_size=14,
    ),
    alternates=st.lists(st.sampled_from((None, *EXCHANGES, "gone")), min_size=3, max_size=3),
    source=st.sampled_from(("", *EXCHANGES)),
    keys=st.lists(st.sampled_from(("a", "b", "a.b", "q1", "")), min_size=1, max_size=3),
)
def test_a_trace_ends_where_the_search_does(
    bindings: list[tuple[str, str, str, bool]],
    alternates: list[str | None],
    source: str,
    keys: list[str],
) -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    for name, alternate in zip(("one", "two", "three"), alternates, strict=True):
        arguments: FieldTable = {} if alternate is None else {"alternate-exchange": alternate}
        vhost.declare_exchange(name, "topic", arguments=arguments)
    for i in range(3):
        new_queue(broker, f"q{i}")
    for start, end, key, is_fallback in bindings:
        wanted: FieldTable = {"x-dead-letter-binding": True} if is_fallback else {}
        bind = vhost.bind_queue if end in vhost.queues else vhost.bind_exchange
        bind(end, start, key, wanted)
    traced = trace(vhost, source, keys[0], {}, keys[1:])
    expected = run_to_completion(find_queues(vhost, vhost.exchanges[source], keys[0], {}, keys[1:]))
    assert [each.queue for each in traced.queues] == expected
    assert (traced.unroutable_reason is None) is bool(expected)
