"""One exchange: unique bindings, their order, and fallback bindings."""

import pytest

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable, Int8
from recado.broker.arguments import ExchangeSettings
from recado.broker.binding import DEAD_LETTER_BINDING_ARGUMENT, Binding
from recado.broker.exchange import EXCHANGE_TYPES, DirectMatcher, Exchange
from recado.broker.steps import run_to_completion

from .stage import found
from .stand_ins import StandInQueue

LAST_RESORT: FieldTable = {DEAD_LETTER_BINDING_ARGUMENT: True}


def exchange_of(kind: str, name: str = "x") -> Exchange[StandInQueue]:
    return Exchange(name, ExchangeSettings(exchange_type=kind))


def match(
    exchange: Exchange[StandInQueue], keys: list[str], headers: FieldTable
) -> list[StandInQueue | Exchange[StandInQueue]]:
    return [binding.destination for binding in run_to_completion(exchange.search(keys, headers))]


def queues(count: int) -> list[StandInQueue]:
    return [StandInQueue(f"q{number}") for number in range(count)]


def test_direct_matches_the_key_alone() -> None:
    exchange, (a, b) = exchange_of("direct"), queues(2)
    exchange.bind(a, "a", {})
    exchange.bind(b, "b", {})
    assert match(exchange, ["a"], {}) == [a]
    assert match(exchange, ["b"], {}) == [b]
    assert match(exchange, ["a.b"], {}) == []


def test_fanout_matches_everything() -> None:
    exchange, bound = exchange_of("fanout"), queues(3)
    for queue in bound:
        exchange.bind(queue, "ignored", {})
    assert match(exchange, ["anything"], {}) == bound


def test_each_part_of_many_matches_is_sorted_in_a_step_of_its_own() -> None:
    exchange = exchange_of("fanout")
    for queue in queues(4 * 1024):
        exchange.bind(queue, "", {})
    finding, sorting, merging = 2, 4, 4
    assert len(list(exchange.search([""], {}))) == finding + sorting + merging


def test_direct_forgets_keys_that_are_gone() -> None:
    matcher: DirectMatcher[str] = DirectMatcher()
    first, second = (Binding("x", queue, "k", {}, 0) for queue in ("a", "b"))
    for binding in (first, second):
        matcher.add(binding)
    matcher.remove(first)
    assert found(matcher, "k") == [second]
    matcher.remove(second)
    assert not matcher._bindings_by_key


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_a_binding_is_made_once(kind: str) -> None:
    exchange, (queue,) = exchange_of(kind), queues(1)
    binding = exchange.bind(queue, "k", {"a": 1, "b": 2})
    assert binding is not None
    assert exchange.bind(queue, "k", {"b": 2, "a": 1}) is None
    assert exchange.find_binding(queue, "k", {"b": 2, "a": 1}) is binding
    exchange.unbind(binding)
    assert exchange.find_binding(queue, "k", {"a": 1, "b": 2}) is None
    assert match(exchange, ["k"], {"a": 1, "b": 2}) == []
    exchange.check()


def test_key_and_arguments_down_to_their_types_tell_bindings_apart() -> None:
    exchange, (queue,) = exchange_of("direct"), queues(1)
    exchange.bind(queue, "k", {})
    exchange.bind(queue, "l", {})
    exchange.bind(queue, "k", {"a": 1})
    exchange.bind(queue, "k", {"a": Int8(1)})
    exchange.bind(queue, "k", {"a": True})
    assert len(exchange.bindings) == 5
    exchange.check()


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_destinations_come_in_the_order_of_binding(kind: str) -> None:
    exchange, bound = exchange_of(kind), queues(40)
    for queue in bound:
        exchange.bind(queue, "k", {})
    assert match(exchange, ["k"], {}) == bound


def test_the_order_holds_across_patterns_and_keys() -> None:
    exchange, (a, b, c) = exchange_of("topic"), queues(3)
    exchange.bind(a, "y.#", {})
    exchange.bind(b, "*", {})
    exchange.bind(c, "x", {})
    exchange.bind(a, "x", {})
    assert match(exchange, ["x", "y"], {}) == [a, b, c, a]


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_the_last_resort_is_taken_when_nothing_else_matches(kind: str) -> None:
    exchange, (ordinary, last) = exchange_of(kind), queues(2)
    exchange.bind(last, "k", LAST_RESORT)
    assert match(exchange, ["k"], {}) == [last]
    binding = exchange.bind(ordinary, "k", {})
    assert binding is not None
    assert match(exchange, ["k"], {}) == [ordinary]
    exchange.unbind(binding)
    assert match(exchange, ["k"], {}) == [last]


def test_the_last_resort_has_criteria_too() -> None:
    exchange, (ordinary, last) = exchange_of("topic"), queues(2)
    exchange.bind(ordinary, "a", {})
    exchange.bind(last, "b.#", LAST_RESORT)
    assert match(exchange, ["a"], {}) == [ordinary]
    assert match(exchange, ["b"], {}) == [last]
    assert match(exchange, ["c"], {}) == []
    assert match(exchange, ["b", "a"], {}) == [ordinary]


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_the_last_resort_is_taken_when_matching_queues_were_deleted(kind: str) -> None:
    """A queue is deleted for routing before its bindings are removed, which takes several steps if they are many."""
    exchange, (first, second) = exchange_of(kind), queues(2)
    exchange.bind(first, "k", {})
    exchange.bind(second, "k", LAST_RESORT)
    assert match(exchange, ["k"], {}) == [first]
    first.deleted = True
    assert match(exchange, ["k"], {}) == [second]
    second.deleted = True
    assert match(exchange, ["k"], {}) == []


def test_one_queue_may_be_bound_both_ways() -> None:
    exchange, (queue,) = exchange_of("direct"), queues(1)
    exchange.bind(queue, "k", {})
    exchange.bind(queue, "k", LAST_RESORT)
    assert match(exchange, ["k"], {}) == [queue]
    ordinary = exchange.find_binding(queue, "k", {})
    assert ordinary is not None
    exchange.unbind(ordinary)
    assert match(exchange, ["k"], {}) == [queue]


def test_not_to_be_the_last_resort_is_ordinary() -> None:
    exchange, (queue, last) = exchange_of("direct"), queues(2)
    exchange.bind(last, "k", LAST_RESORT)
    exchange.bind(queue, "k", {DEAD_LETTER_BINDING_ARGUMENT: False})
    assert match(exchange, ["k"], {}) == [queue]


def test_the_last_resort_must_be_a_boolean() -> None:
    exchange, (queue,) = exchange_of("direct"), queues(1)
    with pytest.raises(PreconditionFailedError, match="'x-dead-letter-binding' must be a boolean"):
        exchange.bind(queue, "k", {DEAD_LETTER_BINDING_ARGUMENT: "yes"})
    assert exchange.is_new
    exchange.check()


@pytest.mark.parametrize(
    ("kind", "key", "arguments"), [("regex", "(", {}), ("headers", "", {"x-match": "most"})]
)
def test_a_refused_binding_leaves_no_trace(kind: str, key: str, arguments: FieldTable) -> None:
    exchange, (queue,) = exchange_of(kind), queues(1)
    with pytest.raises(PreconditionFailedError):
        exchange.bind(queue, key, arguments)
    assert not exchange.bindings
    assert exchange.is_new
    assert match(exchange, [key], {}) == []


def test_bound_exchanges_are_counted() -> None:
    exchange, other = exchange_of("direct"), exchange_of("fanout", "other")
    first = exchange.bind(other, "a", {})
    second = exchange.bind(other, "b", {})
    assert first is not None
    assert second is not None
    assert exchange.bound_exchanges == {other: 2}
    exchange.unbind(first)
    assert exchange.bound_exchanges == {other: 1}
    exchange.unbind(second)
    assert exchange.bound_exchanges == {}


def test_only_a_headers_exchange_looks_at_headers() -> None:
    assert [kind for kind in EXCHANGE_TYPES if exchange_of(kind).uses_headers] == ["headers"]
