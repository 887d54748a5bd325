"""A vhost: declaring, deleting and binding, with RabbitMQ's refusals, and routes."""

from collections.abc import Callable
from typing import Any

import pytest

from recado.amqp.errors import (
    AccessRefusedError,
    AmqpError,
    CommandInvalidError,
    NotFoundError,
    PreconditionFailedError,
    ResourceLockedError,
)
from recado.amqp.values import FieldTable
from recado.broker.arguments import QueueSettings
from recado.broker.binding import Binding
from recado.broker.route_search import depends_on_headers, find_queues
from recado.broker.steps import run_to_completion
from recado.broker.store import MessageStore
from recado.broker.vhost import Vhost

from .stand_ins import StandInQueue

Here = Vhost[StandInQueue]


@pytest.fixture
def vhost() -> Here:
    return Vhost("/")


def add_queue(vhost: Here, name: str, owner: object | None = None) -> StandInQueue:
    settings = QueueSettings(exclusive=owner is not None)
    queue = StandInQueue(name, settings, owner)
    vhost.add_queue(queue)
    return queue


def routed(
    vhost: Here, exchange: str, key: str = "", headers: FieldTable | None = None, *more_keys: str
) -> list[str]:
    found = run_to_completion(
        find_queues(vhost, vhost.find_exchange(exchange), key, headers, more_keys)
    )
    return [queue.name for queue in found]


def refusal(error: type[AmqpError], action: Callable[[], object]) -> str:
    with pytest.raises(error) as refused:
        action()
    return refused.value.reply_text


# ── exchanges ───────────────────────────────────────────────────────────────────────────────────


def test_predeclared_exchanges(vhost: Here) -> None:
    assert {
        name: exchange.settings.exchange_type for name, exchange in vhost.exchanges.items()
    } == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
    }
    assert all(exchange.settings.durable for exchange in vhost.exchanges.values())
    vhost.check()


def test_declaring_again_gives_the_same_exchange(vhost: Here) -> None:
    exchange = vhost.declare_exchange("x", "topic", arguments={"alternate-exchange": "y"})
    epoch = vhost.epoch
    again = vhost.declare_exchange("x", "topic", arguments={"alternate-exchange": "y", "x": 1})
    assert again is exchange
    assert vhost.epoch == epoch
    direct = vhost.declare_exchange("amq.direct", "direct", durable=True)
    assert direct is vhost.exchanges["amq.direct"]


@pytest.mark.parametrize(
    ("error", "declare", "text"),
    [
        (
            CommandInvalidError,
            lambda vhost: vhost.declare_exchange("x", "zz"),
            "COMMAND_INVALID - unknown exchange type 'zz'",
        ),
        (
            AccessRefusedError,
            lambda vhost: vhost.declare_exchange("", "direct"),
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            AccessRefusedError,
            lambda vhost: vhost.require_exchange(""),
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            AccessRefusedError,
            lambda vhost: vhost.declare_exchange("amq.foo", "direct"),
            "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'",
        ),
        (
            PreconditionFailedError,
            lambda vhost: vhost.declare_exchange("amq.direct", "fanout"),
            (
                "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/':"
                " received 'fanout' but current is 'direct'"
            ),
        ),
        (
            PreconditionFailedError,
            lambda vhost: vhost.declare_exchange(
                "x", "direct", arguments={"alternate-exchange": 1}
            ),
            (
                "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in"
                " exchange 'x' in vhost '/'"
            ),
        ),
        (
            NotFoundError,
            lambda vhost: vhost.require_exchange("nope-x"),
            "NOT_FOUND - no exchange 'nope-x' in vhost '/'",
        ),
        (
            NotFoundError,
            lambda vhost: vhost.find_publishable_exchange("nope-x"),
            "NOT_FOUND - no exchange 'nope-x' in vhost '/'",
        ),
        (
            AccessRefusedError,
            lambda vhost: vhost.find_publishable_exchange("amq.rabbitmq.trace"),
            "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'",
        ),
        (
            AccessRefusedError,
            lambda vhost: vhost.delete_exchange(""),
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            AccessRefusedError,
            lambda vhost: vhost.delete_exchange("amq.direct"),
            "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        ),
    ],
)
def test_refused_exchange_operations(
    vhost: Here, error: type[AmqpError], declare: Callable[[Here], object], text: str
) -> None:
    before = dict(vhost.exchanges)
    assert refusal(error, lambda: declare(vhost)) == text
    assert vhost.exchanges == before


def test_a_missing_exchange_is_deleted_already(vhost: Here) -> None:
    vhost.delete_exchange("nope-x")
    vhost.delete_exchange("nope-x", if_unused=True)


def test_an_exchange_in_use_is_not_deleted_if_unused(vhost: Here) -> None:
    add_queue(vhost, "q")
    vhost.declare_exchange("x", "direct")
    vhost.declare_exchange("y", "direct")
    vhost.bind_queue("q", "x", "k")
    vhost.bind_exchange("y", "x", "k")
    text = refusal(PreconditionFailedError, lambda: vhost.delete_exchange("x", if_unused=True))
    assert text == "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    vhost.delete_exchange("y", if_unused=True)
    assert "y" not in vhost.exchanges
    vhost.delete_exchange("x")
    assert "x" not in vhost.exchanges
    vhost.check()


def test_publishing_finds_ordinary_exchanges(vhost: Here) -> None:
    assert vhost.find_publishable_exchange("") is vhost.exchanges[""]
    assert vhost.require_exchange("amq.topic") is vhost.exchanges["amq.topic"]


# ── queues ──────────────────────────────────────────────────────────────────────────────────────

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be"
    " originally declared on another connection or the exclusive property value does not match that"
    " of the original declaration."
)


def test_finding_queues(vhost: Here) -> None:
    queue = add_queue(vhost, "q")
    assert vhost.find_queue("q") is queue
    assert vhost.find_accessible_queue("anyone", "q") is queue
    text = "NOT_FOUND - no queue 'nope-x' in vhost '/'"
    assert refusal(NotFoundError, lambda: vhost.find_queue("nope-x")) == text
    assert refusal(NotFoundError, lambda: vhost.find_accessible_queue("anyone", "nope-x")) == text


def test_an_exclusive_queue_is_its_owners(vhost: Here) -> None:
    queue = add_queue(vhost, "q", "owner")
    assert vhost.find_accessible_queue("owner", "q") is queue
    assert refusal(ResourceLockedError, lambda: vhost.find_accessible_queue("other", "q")) == LOCKED
    assert refusal(ResourceLockedError, lambda: vhost.bind_queue("q", "amq.fanout", "")) == LOCKED
    vhost.bind_queue("q", "amq.fanout", "", connection="owner")
    assert refusal(ResourceLockedError, lambda: vhost.unbind_queue("q", "amq.fanout", "")) == LOCKED
    assert routed(vhost, "amq.fanout") == ["q"]
    vhost.unbind_queue("q", "amq.fanout", "", connection="owner")
    assert routed(vhost, "amq.fanout") == []


def test_a_declared_queue_is_found_again(vhost: Here) -> None:
    assert vhost.find_equivalent_queue("q", QueueSettings(), "me") is None
    queue = add_queue(vhost, "q")
    assert vhost.find_equivalent_queue("q", QueueSettings(), "me") is queue
    text = refusal(
        PreconditionFailedError,
        lambda: vhost.find_equivalent_queue("q", QueueSettings(durable=True), "me"),
    )
    assert text == (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/':"
        " received 'true' but current is 'false'"
    )


def test_a_declaration_that_differs_in_being_exclusive_is_locked_out(vhost: Here) -> None:
    shared, exclusive = QueueSettings(), QueueSettings(exclusive=True)
    queue = add_queue(vhost, "q", "owner")
    assert vhost.find_equivalent_queue("q", exclusive, "owner") is queue
    assert (
        refusal(ResourceLockedError, lambda: vhost.find_equivalent_queue("q", shared, "owner"))
        == LOCKED
    )
    assert (
        refusal(ResourceLockedError, lambda: vhost.find_equivalent_queue("q", exclusive, "me"))
        == LOCKED
    )
    vhost.remove_queue(queue)
    add_queue(vhost, "q")
    assert (
        refusal(ResourceLockedError, lambda: vhost.find_equivalent_queue("q", exclusive, "me"))
        == LOCKED
    )


@pytest.mark.parametrize("name", ["amq.foo", "amq.gen-1"])
def test_reserved_queue_names(vhost: Here, name: str) -> None:
    """Even a server-generated name: a client that declares it again would have to guess it."""
    add_queue(vhost, "amq.gen-1")
    text = refusal(
        AccessRefusedError, lambda: vhost.find_equivalent_queue(name, QueueSettings(), "me")
    )
    assert text == f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"


# ── bindings ────────────────────────────────────────────────────────────────────────────────────


def test_what_cannot_be_bound(vhost: Here) -> None:
    add_queue(vhost, "q")
    default = "ACCESS_REFUSED - operation not permitted on the default exchange"
    missing = "NOT_FOUND - no exchange 'nope-x' in vhost '/'"
    for action in (
        lambda: vhost.bind_queue("q", "", "k"),
        lambda: vhost.unbind_queue("q", "", "k"),
        lambda: vhost.bind_exchange("", "amq.direct", "k"),
        lambda: vhost.bind_exchange("amq.direct", "", "k"),
        lambda: vhost.unbind_exchange("", "amq.direct", "k"),
        lambda: vhost.unbind_exchange("amq.direct", "", "k"),
    ):
        assert refusal(AccessRefusedError, action) == default
    for action in (
        lambda: vhost.bind_queue("q", "nope-x", "k"),
        lambda: vhost.bind_queue("nope-q", "nope-x", "k"),
        lambda: vhost.bind_exchange("nope-x", "amq.direct", "k"),
        lambda: vhost.bind_exchange("amq.direct", "nope-x", "k"),
    ):
        assert refusal(NotFoundError, action) == missing
    text = refusal(NotFoundError, lambda: vhost.bind_queue("nope-q", "amq.direct", "k"))
    assert text == "NOT_FOUND - no queue 'nope-q' in vhost '/'"


def test_what_is_not_bound_is_unbound_already(vhost: Here) -> None:
    add_queue(vhost, "q")
    epoch = vhost.epoch
    vhost.unbind_queue("q", "amq.direct", "k")
    vhost.unbind_queue("q", "nope-x", "k")
    vhost.unbind_queue("nope-q", "amq.direct", "k")
    vhost.unbind_exchange("amq.fanout", "amq.direct", "k")
    vhost.unbind_exchange("amq.fanout", "nope-x", "k")
    vhost.unbind_exchange("nope-x", "amq.direct", "k")
    assert vhost.epoch == epoch


def test_bindings_to_a_queue(vhost: Here) -> None:
    queue = add_queue(vhost, "q")
    assert list(vhost.bindings_to(queue)) == []
    vhost.bind_queue("q", "amq.direct", "k")
    vhost.bind_queue("q", "amq.topic", "#", {"a": 1})
    vhost.bind_queue("q", "amq.topic", "#", {"a": 1})
    assert [
        (binding.source, binding.routing_key, binding.arguments)
        for binding in vhost.bindings_to(queue)
    ] == [("amq.direct", "k", {}), ("amq.topic", "#", {"a": 1})]


def test_a_removed_queue_takes_its_bindings_along(vhost: Here) -> None:
    queue, other = add_queue(vhost, "q"), add_queue(vhost, "other")
    for name in ("q", "other"):
        vhost.bind_queue(name, "amq.direct", "k")
        vhost.bind_queue(name, "amq.topic", "#")
    vhost.remove_queue(queue)
    assert routed(vhost, "amq.direct", "k") == ["other"]
    assert routed(vhost, "amq.topic", "k") == ["other"]
    assert routed(vhost, "", "q") == []
    vhost.remove_queue(other)
    assert not vhost.queues
    assert not vhost.exchanges["amq.topic"].bindings
    vhost.check()


def test_an_auto_delete_exchange_goes_with_its_last_binding(vhost: Here) -> None:
    queue = add_queue(vhost, "q")
    vhost.declare_exchange("x", "direct", auto_delete=True)
    vhost.bind_queue("q", "x", "a")
    vhost.bind_queue("q", "x", "b", {"x-dead-letter-binding": True})
    vhost.unbind_queue("q", "x", "a")
    assert "x" in vhost.exchanges
    vhost.unbind_queue("q", "x", "b", {"x-dead-letter-binding": True})
    assert "x" not in vhost.exchanges
    vhost.declare_exchange("x", "direct", auto_delete=True)
    vhost.bind_queue("q", "x", "a")
    vhost.remove_queue(queue)
    assert "x" not in vhost.exchanges
    vhost.check()


def test_a_long_chain_of_auto_delete_exchanges(vhost: Here) -> None:
    count = 3_000
    queue = add_queue(vhost, "q")
    for number in range(count):
        vhost.declare_exchange(f"x{number}", "fanout", auto_delete=True)
        if number:
            vhost.bind_exchange(f"x{number - 1}", f"x{number}", "")
    vhost.bind_queue("q", "x0", "")
    assert routed(vhost, f"x{count - 1}") == ["q"]
    vhost.remove_queue(queue)
    while vhost.background:
        vhost.check()
        vhost.background.advance()
    assert not [name for name in vhost.exchanges if name.startswith("x")]
    vhost.check()


def test_an_auto_delete_exchange_bound_to_itself(vhost: Here) -> None:
    vhost.declare_exchange("x", "fanout", auto_delete=True)
    vhost.bind_exchange("x", "x", "")
    assert routed(vhost, "x") == []
    vhost.unbind_exchange("x", "x", "")
    assert "x" not in vhost.exchanges
    vhost.declare_exchange("x", "fanout", auto_delete=True)
    vhost.bind_exchange("x", "x", "")
    vhost.delete_exchange("x")
    assert "x" not in vhost.exchanges
    vhost.check()


# ── routing ─────────────────────────────────────────────────────────────────────────────────────


def test_the_default_exchange_knows_queues_by_name(vhost: Here) -> None:
    add_queue(vhost, "a")
    add_queue(vhost, "b")
    assert routed(vhost, "", "a") == ["a"]
    assert routed(vhost, "", "nope") == []
    assert routed(vhost, "", "b", None, "a", "b", "nope") == ["b", "a"]


def test_a_queue_comes_once(vhost: Here) -> None:
    for name in ("a", "b"):
        add_queue(vhost, name)
    vhost.bind_queue("b", "amq.topic", "#")
    vhost.bind_queue("a", "amq.topic", "k.*")
    vhost.bind_queue("b", "amq.topic", "k.l")
    vhost.bind_exchange("amq.fanout", "amq.topic", "#")
    vhost.bind_queue("a", "amq.fanout", "")
    assert routed(vhost, "amq.topic", "k.l") == ["b", "a"]


def test_circles_end(vhost: Here) -> None:
    for name in ("x", "y", "z"):
        vhost.declare_exchange(name, "fanout")
        add_queue(vhost, f"q{name}")
        vhost.bind_queue(f"q{name}", name, "")
    for source, destination in ("xy", "yz", "zx", "xx"):
        vhost.bind_exchange(destination, source, "")
    assert routed(vhost, "x") == ["qx", "qy", "qz"]
    assert routed(vhost, "z") == ["qz", "qx", "qy"]
    assert not run_to_completion(depends_on_headers(vhost, vhost.exchanges["x"]))


def test_the_alternate_exchange_takes_what_nobody_wanted(vhost: Here) -> None:
    for name in ("wanted", "last", "unwanted"):
        add_queue(vhost, name)
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "rest"})
    assert routed(vhost, "x", "k") == []
    vhost.declare_exchange("rest", "fanout")
    vhost.bind_queue("unwanted", "rest", "")
    vhost.bind_queue("wanted", "x", "k")
    vhost.bind_queue("last", "x", "l", {"x-dead-letter-binding": True})
    assert routed(vhost, "x", "k") == ["wanted"]
    assert routed(vhost, "x", "l") == ["last"]
    assert routed(vhost, "x", "m") == ["unwanted"]
    assert routed(vhost, "x", "m", None, "k") == ["wanted"]


def test_alternate_exchanges_form_chains_and_circles(vhost: Here) -> None:
    add_queue(vhost, "q")
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "y"})
    vhost.declare_exchange("y", "direct", arguments={"alternate-exchange": "z"})
    vhost.declare_exchange("z", "direct", arguments={"alternate-exchange": "x"})
    assert routed(vhost, "x", "k") == []
    vhost.bind_queue("q", "z", "k")
    assert routed(vhost, "x", "k") == ["q"]
    vhost.declare_exchange("named", "direct", arguments={"alternate-exchange": ""})
    assert routed(vhost, "named", "q") == ["q"]


def test_an_internal_exchange_is_reached_through_others(vhost: Here) -> None:
    add_queue(vhost, "q")
    vhost.declare_exchange("inside", "fanout", internal=True)
    vhost.bind_queue("q", "inside", "")
    vhost.bind_exchange("inside", "amq.direct", "k")
    assert routed(vhost, "amq.direct", "k") == ["q"]


def test_headers_make_a_difference(vhost: Here) -> None:
    add_queue(vhost, "q")
    vhost.bind_queue("q", "amq.headers", "", {"a": 1})
    assert routed(vhost, "amq.headers", "k", {"a": 1}) == ["q"]
    assert routed(vhost, "amq.headers", "k", {"a": 2}) == []
    assert routed(vhost, "amq.headers", "k") == []


def test_whether_headers_may_make_a_difference(vhost: Here) -> None:
    def depends(name: str) -> bool:
        return run_to_completion(depends_on_headers(vhost, vhost.find_exchange(name)))

    assert [name for name in vhost.exchanges if depends(name)] == ["amq.headers", "amq.match"]
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "y"})
    assert not depends("x")
    vhost.declare_exchange("y", "headers")
    assert depends("x")
    vhost.bind_exchange("x", "amq.direct", "k")
    assert depends("amq.direct")
    vhost.unbind_exchange("x", "amq.direct", "k")
    assert not depends("amq.direct")


def test_two_thousand_queues_come_and_go(vhost: Here) -> None:
    queues = [add_queue(vhost, f"q{number}") for number in range(2_000)]
    for queue in queues:
        for exchange in ("amq.direct", "amq.fanout", "amq.topic"):
            vhost.bind_queue(queue.name, exchange, f"{queue.name}.#")
    assert routed(vhost, "amq.topic", "q7.a") == ["q7"]
    assert len(routed(vhost, "amq.fanout")) == 2_000
    for queue in queues:
        vhost.remove_queue(queue)
    vhost.check()
    assert not any(exchange.bindings for exchange in vhost.exchanges.values())


def test_texts_name_the_vhost() -> None:
    vhost: Here = Vhost("shop")
    with pytest.raises(NotFoundError, match="no queue 'q' in vhost 'shop'"):
        vhost.find_queue("q")


def test_a_binding_is_added_once(vhost: Here) -> None:
    queue = add_queue(vhost, "q")
    source = vhost.exchanges["amq.direct"]
    for _ in range(2):
        vhost.add_binding(source, queue, "k", {})
        vhost.bind(source, queue, "k", {})
    assert (vhost.binding_count, len(source.bindings)) == (1, 1)
    vhost.check()


class RecordedBindings(MessageStore):
    """Records which bindings are stored."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def binding_added(self, vhost: str, binding: Binding[Any]) -> None:
        self.keys.add(binding.routing_key)

    def binding_removed(self, vhost: str, binding: Binding[Any]) -> None:
        """It may not have been stored yet."""
        self.keys.discard(binding.routing_key)


def test_bindings_of_a_queue_that_becomes_durable_are_stored_and_removed_again() -> None:
    """Only those to durable exchanges, and those that exist at the time of each step."""
    store = RecordedBindings()
    vhost: Here = Vhost("/", store=store)
    queue = add_queue(vhost, "q")
    vhost.declare_exchange("transient", "direct")
    vhost.bind_queue("q", "transient", "0")
    for key in "abc":
        vhost.bind_queue("q", "amq.direct", key)
    assert store.keys == set(), "the queue is transient"
    queue.stores_bindings = queue.has_stored_bindings = True
    steps = vhost.record_bindings(queue)
    next(steps)
    vhost.unbind_queue("q", "amq.direct", "c")
    run_to_completion(steps)
    assert store.keys == {"a", "b"}
    queue.stores_bindings = False
    steps = vhost.forget_bindings(queue)
    next(steps)
    vhost.unbind_queue("q", "amq.direct", "b")
    run_to_completion(steps)
    assert store.keys == set()


def test_bindings_of_a_deleted_queue_are_left_to_another_one_of_its_name() -> None:
    store = RecordedBindings()
    vhost: Here = Vhost("/", store=store)
    queue = add_queue(vhost, "q")
    queue.stores_bindings = queue.has_stored_bindings = True
    for key in "ab":
        vhost.bind_queue("q", "amq.direct", key)
    steps = vhost.forget_bindings(queue)
    next(steps)
    assert store.keys == {"b"}
    queue.deleted = True
    run_to_completion(steps)
    assert store.keys == {"b"}
