"""The sizes of published messages: the same counts however they are published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.frames import CONTENT_HEADER_START
from recado.amqp.properties import Properties
from recado.broker.broker import Broker
from recado.broker.channel import Channel
from recado.broker.histogram import Histogram
from recado.broker.message_sizes import LIMITS_BYTES, MessageSizes

from .stage import new_queue, published, run_of

BODIES = [b"", bytes(100), bytes(101), bytes(5_000), bytes(200_000)]  # the last one in two frames


def counted(sizes: MessageSizes) -> tuple[list[int], float]:
    return sizes.counts, sizes.total


def test_sizes_of_a_run_without_a_prefix() -> None:
    together, one_by_one = MessageSizes(), MessageSizes()
    run = run_of(BODIES)
    together.observe_run(run.prefix, run.payloads)
    for payload in run.payloads:
        one_by_one.observe_run(b"", [payload])
    assert counted(together) == counted(one_by_one) == ([2, 1, 1, 0, 1, 0, 0, 0, 0], 205_201)


def test_sizes_of_a_run_in_one_bucket() -> None:
    sizes = MessageSizes()
    run = run_of([bytes(300), bytes(400)])
    sizes.observe_run(run.prefix, run.payloads)
    assert counted(sizes) == ([0, 2, 0, 0, 0, 0, 0, 0, 0], 700)


def test_sizes_of_a_run_with_a_prefix() -> None:
    sizes = MessageSizes()
    run = run_of([bytes(300), bytes(300)], alike=True)
    assert run.prefix
    sizes.observe_run(run.prefix, run.payloads)
    assert counted(sizes) == ([0, 2, 0, 0, 0, 0, 0, 0, 0], 600)


@pytest.mark.parametrize("is_coalesced", [False, True])
@pytest.mark.parametrize("copies", [None, ["other"]])
def test_every_published_message_is_counted_once(
    broker: Broker, channel: Channel, *, is_coalesced: bool, copies: list[str] | None
) -> None:
    """Whatever its route is: to one queue, to several, to none."""
    new_queue(broker)
    new_queue(broker, "other")
    for name in ("q", "other"):
        broker.vhosts["/"].bind_queue(name, "amq.fanout", "")
    broker.coalescer.is_enabled = is_coalesced
    headers = {} if copies is None else {"CC": list[object](copies)}
    properties = Properties(headers=headers)  # type: ignore[arg-type]
    for exchange, key in (("", "q"), ("amq.fanout", ""), ("", "nowhere")):
        channel.publisher.publish(
            published(key, bytes(200), exchange=exchange, properties=properties), 0
        )
        channel.publisher.publish(
            published(key, bytes(50), bytes(60), exchange=exchange, properties=properties), 0
        )
    assert counted(broker.message_sizes) == ([6, 3, 0, 0, 0, 0, 0, 0, 0], 930)


@given(st.lists(st.integers(0, 1 << 30), min_size=1))
def test_any_sizes_are_counted(sizes: list[int]) -> None:
    """Only the announced size counts, so that no body has to be made."""
    headers = [CONTENT_HEADER_START.pack(2, 1, 14, 60, 0, size) for size in sizes]
    together, expected = MessageSizes(), Histogram(LIMITS_BYTES)
    together.observe_run(b"", headers)
    for size in sizes:
        expected.observe(size)
    assert counted(together) == (expected.counts, expected.total)
