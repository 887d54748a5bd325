"""Policies: validation, precedence, effective settings, and the reaction of queues.

The behaviour of RabbitMQ 3.10 was verified with a real one.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.frames import extract_body
from recado.amqp.values import FieldTable
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.arguments import (
    QUEUE_ARGUMENTS,
    ExchangeSettings,
    QueueSettings,
    parse_queue_arguments,
)
from recado.broker.broker import Broker
from recado.broker.errors import InvalidPolicyError
from recado.broker.policy import OPERATOR_POLICY_KEYS, POLICY_KEYS, Policies, Policy
from recado.broker.queue import Queue
from recado.broker.store import MessageStore

from .stage import Peer, consume, new_broker, new_queue, open_channel, published, run_of


def policy(name: str = "p", pattern: str = "", **fields: Any) -> Policy:
    fields.setdefault("definition", {"max-length": 5})
    return Policy(name=name, pattern=pattern, **fields)


def policies(*known: Policy) -> Policies:
    found = Policies()
    for each in known:
        found.set(each)
    return found


def declared(**arguments: Any) -> QueueSettings:
    table: FieldTable = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    return parse_queue_arguments(
        "q", "/", durable=True, exclusive=False, auto_delete=False, arguments=table
    )


# ── what a policy may say ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"message-ttl": -1}, "-1 is not a valid message TTL"),
        ({"message-ttl": 1.5}, "1.5 is not a valid message TTL"),
        ({"message-ttl": "x"}, '<<"x">> is not a valid message TTL'),
        ({"message-ttl": True}, "true is not a valid message TTL"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length-bytes": None}, "null is not a valid maximum length in bytes"),
        ({"overflow": 3}, "3 is not a valid overflow value"),
        ({"dead-letter-exchange": 3}, "3 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": [1]}, "[1] is not a valid dead letter routing key"),
        ({"dead-letter-strategy": "x"}, '<<"x">> is not a valid dead letter strategy'),
        ({"delivery-limit": -1}, "-1 is not a valid delivery limit"),
        ({"alternate-exchange": 3}, "3 is not a valid alternate exchange name"),
        ({"max-age": "1x"}, '<<"1x">> is not a valid max age'),
        ({"stream-max-segment-size-bytes": -1}, "-1 is not a valid segment size"),
        (
            {"stream-filter-size-bytes": 256},
            "256 is not a valid filter size. Valid range is 16-255",
        ),
        ({"queue-mode": "x"}, '<<"x">> is not a valid queue-mode value'),
        ({"queue-version": 3}, "3 is not a valid queue-version value"),
        ({"queue-leader-locator": "x"}, '<<"x">> is not a valid queue leader locator value'),
        ({"initial-cluster-size": "x"}, '<<"x">> is not a valid cluster size'),
        ({"consumer-timeout": -1}, "-1 is not a valid consumer timeout"),
        ({"foo": "bar"}, '[{<<"foo">>,<<"bar">>}] are not recognised policy settings'),
        ({"foo": {"a": 1}}, '[{<<"foo">>,#{<<"a">> => 1}}] are not recognised policy settings'),
        (
            {"foo": 1, "message-ttl": 3, "bar": "x"},
            '[{<<"bar">>,<<"x">>},{<<"foo">>,1}] are not recognised policy settings',
        ),
        ({"message-ttl": -1, "bar": "x"}, "-1 is not a valid message TTL"),
        ({}, "no policy provided"),
        ("a", 'definition must be a dictionary: <<"a">>'),
    ],
)
def test_a_wrong_definition_is_refused_in_the_words_of_rabbitmq(definition: Any, text: str) -> None:
    with pytest.raises(InvalidPolicyError) as refused:
        policy(definition=definition)
    assert str(refused.value) == text


def test_a_policy_applies_to_queues_exchanges_or_all() -> None:
    with pytest.raises(
        InvalidPolicyError, match="apply-to 'foo' unrecognised; should be 'queues', "
    ):
        policy(apply_to="foo")


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(InvalidPolicyError, match="pattern should be regular expression but is"):
        policy(pattern="(")


GOOD: dict[str, Any] = {
    "message-ttl": 0,
    "expires": 1,
    "overflow": "reject-publish",
    "dead-letter-exchange": "dlx",
    "dead-letter-routing-key": "key",
    "dead-letter-strategy": "at-least-once",
    "alternate-exchange": "other",
    "max-age": "7D",
    "stream-filter-size-bytes": 16,
    "queue-mode": "lazy",
    "queue-version": 2,
    "queue-leader-locator": "balanced",
    "queue-master-locator": "min-masters",
    "ha-mode": "exactly",
}


@pytest.mark.parametrize("key", POLICY_KEYS)
def test_every_known_key_may_be_set(key: str) -> None:
    policy(definition={key: GOOD.get(key, 2)})


@pytest.mark.parametrize("key", POLICY_KEYS)
def test_an_operator_may_set_limits_only(key: str) -> None:
    definition = {key: GOOD.get(key, 2)}
    if key in OPERATOR_POLICY_KEYS:
        policy(definition=definition, operator=True)
    else:
        with pytest.raises(InvalidPolicyError, match="are not recognised policy settings"):
            policy(definition=definition, operator=True)


# ── which policy applies (POL1, POL3) ─────────────────────────────────────────────────────────────────────


def test_the_highest_priority_applies_alone_and_of_equals_the_first_by_name() -> None:
    known = policies(
        policy("low", definition={"max-length": 1, "message-ttl": 1}),
        policy("b", priority=2.5, definition={"max-length": 2}),
        policy("a", priority=2.5, definition={"max-length": 3}),
    )
    assert known.queue_definition("q", "classic") == {"max-length": 3}


def test_a_policy_is_for_names_that_it_matches_anywhere() -> None:
    known = policies(policy(pattern="or"))
    assert known.queue_definition("orders", "classic")
    assert not known.queue_definition("invoices", "classic")


def test_a_policy_is_for_queues_or_exchanges_or_both() -> None:
    alternate = {"alternate-exchange": "other"}
    found = {}
    for apply_to in ("queues", "exchanges", "all"):
        known = policies(policy(apply_to=apply_to, definition=alternate))
        found[apply_to] = (
            bool(known.queue_definition("x", "classic")),
            bool(known.exchange_definition("x")),
        )
    assert found == {"queues": (True, False), "exchanges": (False, True), "all": (True, True)}


@pytest.mark.parametrize(
    ("queue_type", "key"),
    [
        ("classic", "delivery-limit"),
        ("classic", "max-age"),
        ("quorum", "queue-mode"),
        ("quorum", "ha-mode"),
        ("stream", "message-ttl"),
        ("stream", "overflow"),
    ],
)
def test_a_policy_that_a_queue_cannot_follow_leaves_it_to_the_next(
    queue_type: str, key: str
) -> None:
    known = policies(
        policy("general", definition={"max-length-bytes": 1}),
        policy("special", priority=1, definition={"max-length-bytes": 2, key: GOOD.get(key, 2)}),
    )
    assert known.queue_definition("q", queue_type) == {"max-length-bytes": 1}


def test_the_lower_limit_of_policy_and_operator_policy_holds() -> None:
    known = policies(
        policy(
            "p", priority=9, definition={"max-length": 5, "message-ttl": 5, "overflow": "drop-head"}
        ),
        policy("o", operator=True, definition={"max-length": 3, "message-ttl": 7, "expires": 1}),
        policy("unheard", operator=True, priority=-1, definition={"max-length": 1}),
    )
    assert known.queue_definition("q", "classic") == {
        "max-length": 3,
        "message-ttl": 5,
        "overflow": "drop-head",
        "expires": 1,
    }


def test_a_policy_and_an_operator_policy_may_have_the_same_name() -> None:
    known = policies(policy(), policy(operator=True))
    known.remove("p", operator=True)
    assert list(known.by_name) == [(False, "p")]


def test_there_must_be_a_policy_to_remove() -> None:
    with pytest.raises(InvalidPolicyError, match="there is no policy 'p'"):
        policies().remove("p")


@given(
    st.dictionaries(
        st.tuples(st.booleans(), st.sampled_from("abc")),
        st.tuples(
            st.sampled_from(("q", "^q$", "x", "")),
            st.integers(0, 2),
            st.sampled_from(("queues", "exchanges", "all")),
            st.dictionaries(
                st.sampled_from(("max-length", "message-ttl")), st.integers(0, 3), min_size=1
            ),
        ),
        max_size=6,
    )
)
def test_what_applies_is_what_a_list_of_candidates_says(wanted: Any) -> None:
    known = policies(
        *(
            policy(
                name, pattern, operator=operator, priority=priority, apply_to=to, definition=says
            )
            for (operator, name), (pattern, priority, to, says) in wanted.items()
        )
    )
    said: list[dict[str, int]] = []
    for operator in (False, True):
        candidates = [
            (-priority, name, says)
            for (kind, name), (pattern, priority, to, says) in wanted.items()
            if kind is operator and pattern != "x" and to != "exchanges"
        ]
        said += [min(candidates, key=lambda each: each[:2])[2]] if candidates else []
    keys = {key for each in said for key in each}
    assert known.queue_definition("q", "classic") == {
        key: min(each[key] for each in said if key in each) for key in keys
    }


# ── what it makes of a declaration (POL2) ───────────────────────────────────────────────────────────────


def test_without_policies_a_queue_is_as_declared() -> None:
    settings = declared(max_length=5)
    assert policies().effective_queue_settings("q", settings) is settings
    assert policies(policy(pattern="x")).effective_queue_settings("q", settings) == settings


def test_of_two_limits_the_lower_one_holds_and_of_other_things_the_argument() -> None:
    known = policies(
        policy(
            definition={
                "max-length": 3,
                "message-ttl": 9,
                "expires": 10**15,
                "overflow": "reject-publish",
                "dead-letter-exchange": "theirs",
                "dead-letter-routing-key": "key",
            }
        )
    )
    settings = declared(max_length=5, message_ttl=7, overflow="drop-head", dead_letter_exchange="m")
    effective = known.effective_queue_settings("q", settings)
    assert effective.arguments == settings.arguments
    assert (effective.max_length, effective.message_ttl_ms) == (3, 7)
    assert effective.expires_ms == 315_360_000_000, "a policy may say more than ten years"
    assert effective.overflow == "drop-head"
    assert effective.dead_letter_exchange == "m"
    assert effective.dead_letter_routing_key == "key"


def test_a_quorum_queue_lets_the_policy_decide_on_overflow_and_expiry() -> None:
    known = policies(
        policy(definition={"overflow": "reject-publish", "expires": 9, "max-length": 9})
    )
    settings = declared(queue_type="quorum", overflow="drop-head", expires=5, max_length=5)
    effective = known.effective_queue_settings("q", settings)
    assert (effective.overflow, effective.expires_ms, effective.max_length) == (
        "reject-publish",
        9,
        5,
    )


def test_a_stream_lets_the_policy_decide() -> None:
    known = policies(policy(definition={"max-age": "2h", "max-length-bytes": 9}))
    settings = declared(queue_type="stream", max_age="1h", max_length_bytes=5)
    effective = known.effective_queue_settings("q", settings)
    assert (effective.max_age_ms, effective.max_length_bytes) == (7_200_000, 9)


def test_what_is_of_no_consequence_changes_nothing() -> None:
    settings = declared()
    known = policies(policy(definition={"ha-mode": "all", "queue-mode": "lazy"}))
    assert known.effective_queue_settings("q", settings) == settings


@pytest.mark.parametrize("key", POLICY_KEYS)
def test_every_key_that_matters_to_a_queue_has_a_field(key: str) -> None:
    field, _ = QUEUE_ARGUMENTS.get(f"x-{key}", (None, None))
    assert field is None or field in QueueSettings.__struct_fields__


def test_an_exchange_has_its_own_alternate_or_that_of_the_policy() -> None:
    known = policies(policy(definition={"alternate-exchange": "theirs"}))
    plain = ExchangeSettings(exchange_type="fanout")
    own = ExchangeSettings(exchange_type="fanout", alternate_exchange="mine")
    assert known.effective_exchange_settings("x", plain).alternate_exchange == "theirs"
    assert known.effective_exchange_settings("x", own) is own
    assert policies(policy()).effective_exchange_settings("x", plain) is plain


# ── in a broker ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def put(queue: Queue, *bodies: bytes, now: int = 0) -> None:
    queue.publish(run_of(bodies), now)


def content(queue: Queue, now: int = 0) -> list[bytes]:
    """Accepts everything."""
    found = []
    while (run := queue.get(now)) is not None:
        found += [extract_body(each) for each in run.contents()]
    return found


def set_policy(broker: Broker, now: int = 0, **definition: Any) -> None:
    says = {key.replace("_", "-"): value for key, value in definition.items()}
    broker.set_policies("/", [policy(pattern="^q", definition=says)], now)


def test_a_limit_holds_at_once_and_no_longer_than_the_policy(broker: Broker) -> None:
    queue = new_queue(broker)
    put(queue, b"1", b"2", b"3")
    set_policy(broker, max_length=2)
    put(queue, b"4")
    assert queue.ready == 2
    broker.delete_policy("/", "p", 0)
    put(queue, b"5")
    assert content(queue) == [b"3", b"4", b"5"]


def test_a_limit_in_bytes_counts_what_is_there(broker: Broker) -> None:
    queue = new_queue(broker)
    put(queue, b"12345", b"678")
    set_policy(broker, max_length_bytes=4)
    assert queue.ready == 1
    set_policy(broker, max_length_bytes=2)
    assert queue.ready == 0
    broker.delete_policy("/", "p", 0)
    put(queue, b"12", b"34")
    set_policy(broker, max_length_bytes=2)
    assert content(queue) == [b"34"]


def test_a_queue_that_refuses_keeps_what_is_too_much_already(broker: Broker) -> None:
    queue = new_queue(broker)
    put(queue, b"1", b"2", b"3")
    set_policy(broker, max_length=2, overflow="reject-publish")
    assert list(queue.publish(run_of([b"4"]), 0)) == [0]
    assert queue.ready == 3


def test_messages_keep_the_time_to_live_that_they_came_with(broker: Broker) -> None:
    queue = new_queue(broker)
    put(queue, b"old", now=0)
    set_policy(broker, message_ttl=10)
    put(queue, b"new", now=0)
    broker.delete_policy("/", "p", 5)
    put(queue, b"newest", now=5)
    assert content(queue, now=50) == [b"old", b"newest"]


def test_a_queue_that_is_to_expire_has_its_time_from_now_on(broker: Broker) -> None:
    queue = new_queue(broker, now=0)
    set_policy(broker, now=100, expires=50)
    broker.tick(149)
    assert not queue.deleted
    broker.tick(150)
    assert queue.deleted


def test_a_queue_whose_policy_went_does_not_expire(broker: Broker) -> None:
    queue = new_queue(broker)
    set_policy(broker, expires=50)
    broker.delete_policy("/", "p", 10)
    broker.tick(100)
    assert not queue.deleted


def test_policies_are_for_queues_that_come_later_too(broker: Broker) -> None:
    set_policy(broker, max_length=1)
    queue = new_queue(broker)
    put(queue, b"1", b"2")
    assert content(queue) == [b"2"]


def test_a_queue_may_be_declared_again_as_it_was(broker: Broker) -> None:
    set_policy(broker, max_length=1)
    queue = new_queue(broker)
    vhost = broker.vhosts["/"]
    assert vhost.find_equivalent_queue("q", QueueSettings(), None) is queue
    with pytest.raises(PreconditionFailedError):
        vhost.find_equivalent_queue("q", QueueSettings(arguments={"x-max-length": 1}), None)


def test_a_policy_is_applied_to_many_queues_and_exchanges_in_steps(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    queues = [new_queue(broker, f"q{i}") for i in range(1000)]
    for i in range(1000):
        vhost.declare_exchange(f"x{i}", "fanout")
    definition = {"max-length": 5, "alternate-exchange": "amq.fanout"}
    broker.set_policies("/", [Policy(name="p", pattern=".*", definition=definition)], 0)
    assert vhost.exchanges["x0"].settings.alternate_exchange == "amq.fanout"
    assert queues[-1].settings.max_length is None
    assert new_queue(broker, "new").settings.max_length == 5
    broker.delete_queue(queues[-1], 0)
    while broker.deadline() == 0:
        broker.tick(0)
    assert {queue.settings.max_length for queue in queues[:-1]} == {5}
    assert vhost.exchanges["x999"].settings.alternate_exchange == "amq.fanout"
    assert queues[-1].settings.max_length is None


def test_what_a_policy_sends_elsewhere_goes_there(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    queue = new_queue(broker)
    put(queue, b"1", b"2")
    set_policy(broker, max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    assert content(dead) == [b"1"]


def test_dead_letters_that_wait_while_their_policy_goes_are_dropped(broker: Broker) -> None:
    """Not published to the default exchange, which an exchange without a name would be."""
    dead, queue = new_queue(broker, "key"), new_queue(broker)
    put(queue, *(b"%d" % i for i in range(20_000)))
    set_policy(broker, max_length=0, dead_letter_exchange="")
    arrived = dead.ready
    assert 0 < arrived < 20_000
    broker.delete_policy("/", "p", 0)
    now = 0
    while broker.deadline() is not None:
        now += 1
        broker.tick(now)
    assert dead.ready == arrived


def test_an_alternate_exchange_comes_and_goes_with_the_policy(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("q-source", "direct")
    vhost.declare_exchange("other", "fanout")
    queue = new_queue(broker, "sink")
    vhost.bind_queue("sink", "other", "")
    channel = open_channel(broker)
    publish = published("nowhere", b"m", exchange="q-source")
    channel.publisher.publish(publish, 0)
    set_policy(broker, alternate_exchange="other")
    channel.publisher.publish(publish, 0)
    vhost.declare_exchange("q-source", "direct")  # unchanged
    later = vhost.declare_exchange("q-later", "direct")
    assert later.settings.alternate_exchange == "other"
    broker.delete_policy("/", "p", 0)
    channel.publisher.publish(publish, 0)
    assert queue.ready == 1
    assert vhost.exchanges[""].settings.alternate_exchange is None


def test_addresses_for_direct_replies_are_no_queues_for_policies(broker: Broker) -> None:
    broker.set_policies("/", [policy(definition={"expires": 1})], 0)
    replies = broker.create_reply_queue(broker.vhosts["/"], 0)
    broker.set_policies("/", [policy(definition={"expires": 2})], 0)
    broker.tick(100)
    assert not replies.deleted


def test_consumers_notice_nothing_of_a_change(broker: Broker) -> None:
    peer = Peer()
    queue = new_queue(broker)
    consume(open_channel(broker, peer), queue, no_ack=True)
    set_policy(broker, max_length=1)
    put(queue, b"1", b"2")
    assert peer.bodies() == [b"1", b"2"]


# ── remembered ────────────────────────────────────────────────────────────────────────────────────────


class Notebook(MessageStore):
    """Stores metadata only."""

    def __init__(self) -> None:
        self.facts: dict[tuple[str, str, str], bytes] = {}

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        if value is None:
            del self.facts[kind, vhost, name]
        else:
            self.facts[kind, vhost, name] = value


def test_vhosts_users_and_policies_are_recalled() -> None:
    notebook = Notebook()
    broker = Broker(str, store=notebook)
    ana = User(
        "ana",
        "hash",
        ("monitoring",),
        {"orders": Permission(".*", "", "^x")},
        {("orders", "amq.topic"): TopicPermission("a", "b")},
    )
    broker.add_vhost("orders", persist=True)
    broker.add_user(ana, persist=True)
    broker.add_user(User("bob"))
    broker.set_policies("orders", [policy(), policy("gone"), policy(operator=True)], 0)
    broker.set_policies("/", [policy("here", definition={"message-ttl": 3})], 0)
    broker.delete_policy("orders", "gone", 0)
    notebook.facts["window", "elsewhere", "q"] = b"somebody else's"

    after = Broker(str)
    new_queue(after)
    after.restore_metadata(notebook.facts, 0)
    assert set(after.vhosts) == {"/", "orders", "elsewhere"}
    assert after.users == {"ana": ana}
    for name in ("/", "orders"):
        assert after.vhosts[name].policies.by_name == broker.vhosts[name].policies.by_name
    assert after.vhosts["/"].queues["q"].settings.message_ttl_ms == 3


def test_a_policy_survives_being_written_down() -> None:
    first = policy(pattern="^(?!amq\\.)", definition={"ha-params": ["a", 1]}, priority=1.5)
    assert msgspec.json.decode(msgspec.json.encode(first), type=Policy) == first
