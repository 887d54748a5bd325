"""What RabbitMQ 3.10 answers to questions about streams; recado answers the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from .answers import Case, Closed, answer, channel, connection
from .streams import STREAM, declared


def failed(text: str) -> Closed:
    return channel(406, f"PRECONDITION_FAILED - {text}")


def invalid(argument: str, why: str) -> Closed:
    return failed(f"invalid arg '{argument}' for queue '{{name}}' in vhost '/'{why}")


def inequivalent(argument: str, received: str, current: str) -> Closed:
    return failed(
        f"inequivalent arg '{argument}' for queue '{{name}}' in vhost '/':"
        f" received {received} but current is {current}"
    )


def unsupported(what: str) -> Closed:
    return connection(
        540,
        f"NOT_IMPLEMENTED - {what} not supported by stream queues queue '{{name}}' in vhost '/'",
    )


def declaring(
    arguments: dict[str, object] | None = None,
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> Callable[[Case], object]:
    def declare(case: Case) -> str:
        case.channel.queue_declare(
            case.name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments={**STREAM, **(arguments or {})},
        )
        case.channel.queue_delete(case.name)
        return "declared"

    return declare


def using(ask: Callable[[BlockingChannel, str], object]) -> Callable[[Case], object]:
    """A question about a stream that is there."""

    def asked(case: Case) -> object:
        with declared(case.connect, case.name):
            return ask(case.channel, case.name)

    return asked


def consuming(
    prefetch: int = 1, *, global_qos: bool = False, auto_ack: bool = False, **arguments: object
) -> Callable[[Case], object]:
    given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}

    def consume(channel: BlockingChannel, name: str) -> str:
        channel.basic_qos(prefetch_count=prefetch, global_qos=global_qos)
        channel.basic_consume(name, print, auto_ack=auto_ack, arguments=given)
        return "consuming"

    return using(consume)


def of_another_kind(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)


def of_another_age(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True, arguments={**STREAM, "x-max-age": "1h"})


NO_PREFETCH = failed("consumer prefetch count is not set for 'queue '{name}' in vhost '/''")
FOREIGN = " of queue type rabbit_stream_queue"
INEQUIVALENT = (
    "inequivalent arg '{}' for queue '{{name}}' in vhost '/': received {} but current is {}"
)

QUESTIONS: dict[str, tuple[Callable[[Case], object], object]] = {
    "declare": (declaring(), "declared"),
    "declare with everything": (
        declaring(
            {
                "x-max-age": "7D",
                "x-max-length-bytes": 10**9,
                "x-stream-max-segment-size-bytes": 10**6,
                "x-initial-cluster-size": 1,
                "x-queue-leader-locator": "client-local",
            }
        ),
        "declared",
    ),
    "not durable": (
        declaring(durable=False),
        failed("invalid property 'non-durable' for queue '{name}' in vhost '/'"),
    ),
    "exclusive": (
        declaring(exclusive=True),
        failed("invalid property 'exclusive-owner' for queue '{name}' in vhost '/'"),
    ),
    "auto-delete": (
        declaring(auto_delete=True),
        failed("invalid property 'auto-delete' for queue '{name}' in vhost '/'"),
    ),
    "no age": (declaring({"x-max-age": "0h"}), invalid("x-max-age", ": invalid_max_age")),
    "an age of another unit": (
        declaring({"x-max-age": "1x"}),
        invalid("x-max-age", ": invalid_max_age"),
    ),
    "an age in numbers": (
        declaring({"x-max-age": 5}),
        invalid("x-max-age", ": {unacceptable_type,signedint}"),
    ),
    "negative bytes": (
        declaring({"x-max-length-bytes": -1}),
        invalid("x-max-length-bytes", ": {value_negative,-1}"),
    ),
    "too large a segment": (
        declaring({"x-stream-max-segment-size-bytes": 3_000_000_001}),
        failed("Exceeded max value for x-stream-max-segment-size-bytes"),
    ),
    "no cluster": (
        declaring({"x-initial-cluster-size": 0}),
        invalid("x-initial-cluster-size", ": {value_zero,0}"),
    ),
    "nowhere to lead": (
        declaring({"x-queue-leader-locator": "nowhere"}),
        invalid("x-queue-leader-locator", ": invalid_queue_locator_arg"),
    ),
    **{
        argument: (
            declaring({argument: value}),
            invalid(argument, FOREIGN),
        )
        for argument, value in {
            "x-max-length": 5,
            "x-message-ttl": 5,
            "x-expires": 5,
            "x-dead-letter-exchange": "x",
            "x-single-active-consumer": True,
            "x-max-priority": 5,
            "x-overflow": "drop-head",
            "x-queue-mode": "lazy",
            "x-delivery-limit": 2,
        }.items()
    },
    "another kind": (
        using(of_another_kind),
        inequivalent("x-queue-type", "none", "the value 'stream' of type 'longstr'"),
    ),
    "another age": (
        using(of_another_age),
        inequivalent("x-max-age", "the value '1h' of type 'longstr'", "none"),
    ),
    "get": (using(lambda channel, name: channel.basic_get(name)), unsupported("basic.get")),
    "purge": (using(lambda channel, name: channel.queue_purge(name)), unsupported("queue.purge")),
    "consume": (consuming(), "consuming"),
    "consume without prefetch": (consuming(0), NO_PREFETCH),
    "consume with prefetch for the channel": (consuming(5, global_qos=True), NO_PREFETCH),
    "consume without acks": (consuming(auto_ack=True), unsupported("automatic acknowledgement")),
    "consume with priority": (consuming(priority=5), invalid("x-priority", FOREIGN)),
    "consume from a bad time": (
        consuming(stream_offset="10"),
        invalid("x-stream-offset", ': {invalid_stream_offset_arg,{longstr,<<"10">>}}'),
    ),
}


@pytest.mark.parametrize(("ask", "expected"), QUESTIONS.values(), ids=QUESTIONS)
def test_answer(
    connect: Callable[..., BlockingConnection],
    name: Callable[[str], str],
    ask: Callable[[Case], object],
    expected: object,
) -> None:
    assert answer(Case(connect, name("stream")), ask) == expected
