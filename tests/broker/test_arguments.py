"""Arguments of declarations: every argument, every refusal, and equivalence."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import (
    FieldTable,
    FieldValue,
    Float32,
    Int8,
    Int16,
    Int64,
    LongString,
    ScaledDecimal,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)
from recado.broker.arguments import (
    ConsumerSettings,
    DeduplicationSettings,
    ExchangeSettings,
    QueueSettings,
    describe_entity,
    parse_consumer_arguments,
    parse_exchange_arguments,
    parse_queue_arguments,
)
from recado.broker.checks import MAX_EXPIRY_MS, type_name
from recado.broker.equivalence import check_exchange_equivalent, check_queue_equivalent

QUEUE = describe_entity("queue", "q", "/")
EXCHANGE = describe_entity("exchange", "x", "/")


def parse(
    arguments: FieldTable,
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    server_named: bool = False,
) -> QueueSettings:
    return parse_queue_arguments(
        "q",
        "/",
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=arguments,
        server_named=server_named,
    )


def refused(arguments: FieldTable) -> str:
    with pytest.raises(PreconditionFailedError) as refusal:
        parse(arguments)
    return str(refusal.value)


# ── queues ──────────────────────────────────────────────────────────────────────────────────────


def test_nothing_asked() -> None:
    assert parse({}, durable=False) == QueueSettings()


def test_everything_asked_of_a_classic_queue() -> None:
    arguments: FieldTable = {
        "x-queue-type": "classic",
        "x-message-ttl": Int8(0),
        "x-expires": UInt32(60_000),
        "x-max-length": 0,
        "x-max-length-bytes": Int64(1 << 40),
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-max-priority": UInt8(255),
        "x-single-active-consumer": True,
        "x-queue-mode": "lazy",
        "x-queue-version": 2,
        "x-queue-master-locator": "min-masters",
        "x-unheard-of": [1],
    }
    settings = parse(arguments, auto_delete=True)
    assert settings == QueueSettings(
        durable=True,
        auto_delete=True,
        arguments=arguments,
        queue_type="classic",
        message_ttl_ms=0,
        expires_ms=60_000,
        max_length=0,
        max_length_bytes=1 << 40,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        max_priority=255,
        single_active_consumer=True,
    )
    assert type(settings.message_ttl_ms) is int


def test_everything_asked_of_a_quorum_queue() -> None:
    settings = parse(
        {
            "x-queue-type": "quorum",
            "x-delivery-limit": 5,
            "x-dead-letter-exchange": "dead",
            "x-dead-letter-strategy": "at-least-once",
            "x-max-in-memory-length": 1,
            "x-max-in-memory-bytes": 1,
            "x-quorum-initial-group-size": 3,
            "x-queue-leader-locator": "balanced",
        }
    )
    assert settings.queue_type == "quorum"
    assert settings.delivery_limit == 5
    assert settings.dead_letter_exchange == "dead"


@pytest.mark.parametrize(
    ("arguments", "window"),
    [
        ({}, None),
        ({"x-cache-size": 5}, None),
        ({"x-message-deduplication": False, "x-cache-size": 5}, None),
        ({"x-message-deduplication": True}, DeduplicationSettings(10_000, None)),
        (
            {"x-message-deduplication": True, "x-cache-size": 5, "x-cache-ttl": 7},
            DeduplicationSettings(5, 7),
        ),
    ],
)
def test_queues_and_exchanges_that_find_duplicates(
    arguments: FieldTable, window: DeduplicationSettings | None
) -> None:
    assert parse(arguments).deduplication == window
    assert exchange(arguments=arguments).deduplication == window


def test_an_exclusive_queue_is_not_durable() -> None:
    settings = parse({}, durable=True, exclusive=True)
    assert settings.exclusive
    assert not settings.durable


def test_no_priorities_at_all() -> None:
    assert parse({"x-max-priority": 0}).max_priority is None


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "abc", '"expected integer, got longstr"'),
        ("x-message-ttl", True, '"expected integer, got bool"'),
        ("x-message-ttl", Timestamp(1), '"expected integer, got timestamp"'),
        ("x-message-ttl", 1.5, '"expected integer, got double"'),
        ("x-message-ttl", None, '"expected integer, got void"'),
        ("x-message-ttl", MAX_EXPIRY_MS + 1, "{value_too_large,315360000001}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -1, "{value_negative,-1}"),
        ("x-expires", MAX_EXPIRY_MS + 1, "{value_too_large,315360000001}"),
        ("x-expires", "1", '"expected integer, got longstr"'),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", -2, "{value_negative,-2}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-max-priority", "9", '"expected integer, got longstr"'),
        ("x-overflow", "explode", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,signedint}"),
        ("x-queue-mode", "eager", "\"unsupported queue mode 'eager'\""),
        ("x-queue-version", 3, "\"unsupported queue version '3'\""),
        ("x-queue-type", "zz", "\"unsupported queue type 'zz'\""),
        ("x-queue-type", 1, "{unacceptable_type,signedint}"),
        ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
        ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-routing-key", "dead", "routing_key_but_no_dlx_defined"),
        ("x-dead-letter-routing-key", 5, "{unacceptable_type,signedint}"),
        ("x-dead-letter-exchange", "é" * 128, "longer than 255 bytes"),
        ("x-consumer-timeout", -1, "{value_negative,-1}"),
        ("x-message-deduplication", "yes", "{unacceptable_type,longstr}"),
        ("x-cache-size", 0, "{value_zero,0}"),
        ("x-cache-size", 100_001, "{value_too_large,100001}"),
        ("x-cache-ttl", 0, "{value_zero,0}"),
    ],
)
def test_refused_arguments(argument: str, value: FieldValue, reason: str) -> None:
    assert refused({argument: value}) == f"invalid arg '{argument}' for {QUEUE}: {reason}"


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-dead-letter-strategy", "never", "invalid_dlx_strategy"),
        ("x-quorum-initial-group-size", 0, "{value_zero,0}"),
        ("x-delivery-limit", -1, "{value_negative,-1}"),
    ],
)
def test_refused_arguments_of_a_quorum_queue(argument: str, value: FieldValue, reason: str) -> None:
    text = refused({"x-queue-type": "quorum", argument: value})
    assert text == f"invalid arg '{argument}' for {QUEUE}: {reason}"


def test_a_dead_letter_exchange_has_a_name() -> None:
    assert refused({"x-dead-letter-exchange": 1}) == (
        f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in {QUEUE}"
    )


@pytest.mark.parametrize(
    ("queue_type", "argument"),
    [
        ("quorum", "x-max-priority"),
        ("quorum", "x-queue-mode"),
        ("classic", "x-delivery-limit"),
        ("classic", "x-max-age"),
        ("stream", "x-cache-size"),
        ("stream", "x-consumer-timeout"),
    ],
)
def test_arguments_of_another_type_of_queue(queue_type: str, argument: str) -> None:
    assert refused({"x-queue-type": queue_type, argument: 1}) == (
        f"invalid arg '{argument}' for {QUEUE} of queue type rabbit_{queue_type}_queue"
    )


@pytest.mark.parametrize(
    ("durable", "exclusive", "auto_delete", "refused_property"),
    [
        (True, False, True, "auto-delete"),
        (True, True, False, "exclusive-owner"),
        (False, False, False, "non-durable"),
    ],
)
def test_a_quorum_queue_is_there_to_stay(
    durable: bool, exclusive: bool, auto_delete: bool, refused_property: str
) -> None:
    with pytest.raises(PreconditionFailedError) as refusal:
        parse(
            {"x-queue-type": "quorum"},
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
        )
    assert str(refusal.value) == f"invalid property '{refused_property}' for {QUEUE}"


def test_a_quorum_queue_has_a_name() -> None:
    parse({"x-queue-type": "classic"}, server_named=True)
    with pytest.raises(
        PreconditionFailedError, match="Cannot declare a server-named queue for type"
    ):
        parse({"x-queue-type": "quorum"}, server_named=True)


# ── declared again ──────────────────────────────────────────────────────────────────────────────


def inequivalent(existing: QueueSettings, wanted: QueueSettings) -> str:
    with pytest.raises(PreconditionFailedError) as refusal:
        check_queue_equivalent(QUEUE, existing, wanted)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("existing", "wanted"),
    [
        ({}, {}),
        ({}, {"x-queue-type": "classic"}),
        ({"x-queue-type": "classic"}, {}),
        ({"x-unheard-of": 1}, {"x-unheard-of": 2}),
        ({"x-unheard-of": 1}, {}),
        ({"x-message-ttl": 5}, {"x-message-ttl": Int8(5)}),
    ],
)
def test_the_same_queue_again(existing: FieldTable, wanted: FieldTable) -> None:
    check_queue_equivalent(QUEUE, parse(existing), parse(wanted))


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("durable", QueueSettings(durable=True)),
        ("auto_delete", QueueSettings(auto_delete=True)),
    ],
)
def test_other_properties(field: str, wanted: QueueSettings) -> None:
    assert inequivalent(QueueSettings(), wanted) == (
        f"inequivalent arg '{field}' for {QUEUE}: received 'true' but current is 'false'"
    )


@pytest.mark.parametrize(
    ("existing", "wanted", "text"),
    [
        (
            {"x-message-ttl": 1000},
            {},
            (
                "'x-message-ttl' for queue 'q' in vhost '/': received none"
                " but current is the value '1000' of type 'signedint'"
            ),
        ),
        (
            {},
            {"x-dead-letter-exchange": "dead"},
            (
                "'x-dead-letter-exchange' for queue 'q' in vhost '/': received the value 'dead'"
                " of type 'longstr' but current is none"
            ),
        ),
        (
            {"x-message-ttl": 1000},
            {"x-message-ttl": Int16(2000)},
            "'x-message-ttl' for queue 'q' in vhost '/': received '2000' but current is '1000'",
        ),
        (
            {"x-single-active-consumer": True},
            {},
            (
                "'x-single-active-consumer' for queue 'q' in vhost '/': received none"
                " but current is the value 'true' of type 'bool'"
            ),
        ),
        (
            {"x-queue-master-locator": LongString(b"\xff")},
            {"x-queue-master-locator": "a"},
            (
                "'x-queue-master-locator' for queue 'q' in vhost '/':"
                " received 'a' but current is '\ufffd'"
            ),
        ),
        (
            {"x-queue-type": "quorum"},
            {},
            (
                "'x-queue-type' for queue 'q' in vhost '/': received none"
                " but current is the value 'quorum' of type 'longstr'"
            ),
        ),
        (
            {"x-queue-type": "quorum"},
            {"x-queue-type": "classic"},
            "'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'",
        ),
    ],
)
def test_other_arguments(existing: FieldTable, wanted: FieldTable, text: str) -> None:
    assert inequivalent(parse(existing), parse(wanted)) == f"inequivalent arg {text}"


# ── exchanges ───────────────────────────────────────────────────────────────────────────────────


def exchange(
    kind: str = "direct",
    arguments: FieldTable | None = None,
    *,
    durable: bool = False,
    auto_delete: bool = False,
    internal: bool = False,
) -> ExchangeSettings:
    return parse_exchange_arguments(
        "x",
        "/",
        exchange_type=kind,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments or {},
    )


def test_exchange_arguments() -> None:
    asked: FieldTable = {"alternate-exchange": "rest", "x-unheard-of": 1}
    settings = exchange("topic", asked, durable=True)
    assert settings == ExchangeSettings(
        exchange_type="topic", durable=True, arguments=asked, alternate_exchange="rest"
    )
    assert exchange().alternate_exchange is None
    with pytest.raises(PreconditionFailedError) as refusal:
        exchange(arguments={"alternate-exchange": True})
    assert str(refusal.value) == f"invalid type 'bool' for arg 'alternate-exchange' in {EXCHANGE}"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (exchange("fanout"), "'type' for {}: received 'fanout' but current is 'direct'"),
        (exchange(durable=True), "'durable' for {}: received 'true' but current is 'false'"),
        (
            exchange(auto_delete=True),
            "'auto_delete' for {}: received 'true' but current is 'false'",
        ),
        (exchange(internal=True), "'internal' for {}: received 'true' but current is 'false'"),
        (
            exchange(arguments={"alternate-exchange": "y"}),
            (
                "'alternate-exchange' for {}: received the value 'y' of type 'longstr'"
                " but current is none"
            ),
        ),
    ],
)
def test_another_exchange(wanted: ExchangeSettings, text: str) -> None:
    with pytest.raises(PreconditionFailedError) as refusal:
        check_exchange_equivalent(EXCHANGE, exchange(), wanted)
    assert str(refusal.value) == f"inequivalent arg {text.format(EXCHANGE)}"
    check_exchange_equivalent(EXCHANGE, wanted, wanted)


# ── consumers ───────────────────────────────────────────────────────────────────────────────────


def test_consumer_arguments() -> None:
    assert parse_consumer_arguments("q", "/", "classic", {}) == ConsumerSettings()
    asked: FieldTable = {
        "x-priority": Int8(-5),
        "x-wire-tap": True,
        "x-cancel-on-ha-failover": True,
        "x-unheard-of": 1,
    }
    assert parse_consumer_arguments("q", "/", "classic", asked) == ConsumerSettings(
        arguments=asked, priority=-5, wire_tap=True
    )


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-priority", "high", ': "expected integer, got longstr"'),
        ("x-wire-tap", "yes", ": {unacceptable_type,longstr}"),
        ("x-cancel-on-ha-failover", 1, ": {unacceptable_type,signedint}"),
        ("x-stream-offset", "first", " of queue type rabbit_classic_queue"),
    ],
)
def test_refused_consumer_arguments(argument: str, value: FieldValue, reason: str) -> None:
    with pytest.raises(PreconditionFailedError) as refusal:
        parse_consumer_arguments("q", "/", "classic", {argument: value})
    assert str(refusal.value) == f"invalid arg '{argument}' for {QUEUE}{reason}"


# ── values ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "bool"),
        (Int8(1), "byte"),
        (UInt8(1), "unsignedbyte"),
        (Int16(1), "short"),
        (UInt16(1), "unsignedshort"),
        (1, "signedint"),
        (UInt32(1), "unsignedint"),
        (Int64(1), "long"),
        (Float32(1), "float"),
        (1.0, "double"),
        (ScaledDecimal(1, 1), "decimal"),
        (Timestamp(1), "timestamp"),
        (datetime(2024, 1, 1, tzinfo=UTC), "timestamp"),
        ("", "longstr"),
        (LongString(b"\xff"), "longstr"),
        (b"", "binary"),
        ([], "array"),
        ({}, "table"),
        (None, "void"),
    ],
)
def test_type_names(value: FieldValue, name: str) -> None:
    assert type_name(value) == name


values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300), st.text(max_size=2), st.binary(max_size=2)
)
arguments_ = st.dictionaries(
    st.sampled_from(
        [
            "x-message-ttl",
            "x-expires",
            "x-max-length",
            "x-max-priority",
            "x-overflow",
            "x-queue-type",
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-single-active-consumer",
            "x-delivery-limit",
            "x-consumer-timeout",
            "x-message-deduplication",
            "x-cache-size",
            "x-other",
        ]
    ),
    values,
)


@given(arguments_)
def test_whatever_is_asked_is_settled_or_refused(arguments: FieldTable) -> None:
    try:
        settings = parse(arguments)
    except PreconditionFailedError:
        assert QUEUE in refused(dict(reversed(arguments.items())))
    else:
        check_queue_equivalent(QUEUE, settings, parse(dict(reversed(arguments.items()))))
