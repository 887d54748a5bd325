"""Arguments of streams and of their consumers."""

import pytest

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable, FieldValue, Int64, Timestamp
from recado.broker.arguments import (
    ConsumerSettings,
    QueueSettings,
    parse_consumer_arguments,
    parse_queue_arguments,
)
from recado.broker.checks import StreamOffset

QUEUE = "queue 'q' in vhost '/'"
HOUR = 3_600_000


def parse(arguments: FieldTable | None = None, *, server_named: bool = False) -> QueueSettings:
    return parse_queue_arguments(
        "q",
        "/",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments={"x-queue-type": "stream", **(arguments or {})},
        server_named=server_named,
    )


def test_everything_asked_of_a_stream() -> None:
    settings = parse(
        {
            "x-max-age": "7D",
            "x-max-length-bytes": Int64(10**12),
            "x-stream-max-segment-size-bytes": 1000,
            "x-stream-filter-size-bytes": 16,
            "x-initial-cluster-size": 3,
            "x-queue-leader-locator": "least-leaders",
        }
    )
    assert settings.queue_type == "stream"
    assert settings.max_age_ms == 7 * 24 * HOUR
    assert settings.max_length_bytes == 10**12
    assert settings.segment_bytes == 1000


@pytest.mark.parametrize(
    ("age", "hours"),
    [("1h", 1), ("3600s", 1), ("60m", 1), ("1D", 24), ("1M", 720), ("1Y", 8760), ("010h", 10)],
)
def test_ages(age: str, hours: int) -> None:
    assert parse({"x-max-age": age}).max_age_ms == hours * HOUR


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        *(
            ("x-max-age", age, "invalid_max_age")
            for age in ("", "h", "1", "0h", "-1h", "1.5h", "1x", " 1h", "1h ", "²h", "9" * 20 + "Y")
        ),
        ("x-max-age", 5, "{unacceptable_type,signedint}"),
        ("x-stream-max-segment-size-bytes", -1, "{value_negative,-1}"),
        (
            "x-stream-filter-size-bytes",
            15,
            "15 is not a valid filter size, which is 16 to 255 bytes",
        ),
        (
            "x-stream-filter-size-bytes",
            256,
            "256 is not a valid filter size, which is 16 to 255 bytes",
        ),
        ("x-initial-cluster-size", 0, "{value_zero,0}"),
        ("x-queue-leader-locator", "here", "invalid_queue_locator_arg"),
    ],
)
def test_refused_arguments(argument: str, value: FieldValue, reason: str) -> None:
    with pytest.raises(PreconditionFailedError) as refusal:
        parse({argument: value})
    assert str(refusal.value) == f"invalid arg '{argument}' for {QUEUE}: {reason}"


def test_a_segment_has_a_limit_and_a_stream_a_name() -> None:
    with pytest.raises(
        PreconditionFailedError, match="Exceeded max value for x-stream-max-segment"
    ):
        parse({"x-stream-max-segment-size-bytes": Int64(3_000_000_001)})
    with pytest.raises(
        PreconditionFailedError, match="server-named queue for type rabbit_stream_queue"
    ):
        parse(server_named=True)


@pytest.mark.parametrize(
    ("value", "offset"),
    [
        ("first", StreamOffset("first")),
        ("last", StreamOffset("last")),
        ("next", StreamOffset()),
        (5, StreamOffset("offset", 5)),
        (Int64(10**12), StreamOffset("offset", 10**12)),
        (Timestamp(1_700_000_000), StreamOffset("time", 1_700_000_000_000)),
        ("1h", StreamOffset("age", HOUR)),
    ],
)
def test_offsets(value: FieldValue, offset: StreamOffset) -> None:
    arguments: FieldTable = {"x-stream-offset": value}
    settings = parse_consumer_arguments("q", "/", "stream", arguments)
    assert settings == ConsumerSettings(arguments=arguments, stream_offset=offset)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("10", '{longstr,<<"10">>}'),
        ("soon", '{longstr,<<"soon">>}'),
        (True, "{bool,true}"),
        (None, "{void,None}"),
        (1.5, "{double,1.5}"),
    ],
)
def test_refused_offsets(value: FieldValue, shown: str) -> None:
    with pytest.raises(PreconditionFailedError) as refusal:
        parse_consumer_arguments("q", "/", "stream", {"x-stream-offset": value})
    assert str(refusal.value) == (
        f"invalid arg 'x-stream-offset' for {QUEUE}: {{invalid_stream_offset_arg,{shown}}}"
    )


@pytest.mark.parametrize("argument", ["x-priority", "x-cancel-on-ha-failover", "x-wire-tap"])
def test_arguments_of_other_consumers(argument: str) -> None:
    value: FieldValue = 1 if argument == "x-priority" else True
    with pytest.raises(PreconditionFailedError, match="of queue type rabbit_stream_queue"):
        parse_consumer_arguments("q", "/", "stream", {argument: value})
