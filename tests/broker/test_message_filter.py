"""Stream consumers with filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable, FieldValue, LongString
from recado.broker.arguments import QueueType, parse_consumer_arguments
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.checks import StreamOffset
from recado.broker.message_filter import EVALUATION_COST_BYTES, MessageFilter
from recado.broker.queue import Queue
from recado.broker.run import Origin, Run
from recado.broker.stream import TURN_BYTES

from .stage import Peer, close_channel, consume, new_broker, open_channel, run_of
from .test_stream import FIRST, deliveries, new_stream, offsets


@pytest.fixture
def broker() -> Broker:
    return new_broker()


@pytest.fixture
def stream(broker: Broker) -> Queue:
    return new_stream(broker)


def selecting(
    broker: Broker, stream: Queue, text: str, prefetch: int = 1000, offset: StreamOffset = FIRST
) -> tuple[Channel, Peer]:
    peer = Peer()
    channel = open_channel(broker, peer)
    selection = MessageFilter(text)
    consume(channel, stream, prefetch=prefetch, stream_offset=offset, message_filter=selection)
    return channel, peer


def numbered(count: int, alike: bool, first: int = 0) -> Run:
    return run_of([b"%04d" % (first + i) for i in range(count)], alike=alike)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("alike", [True, False])
def test_what_is_not_wanted_is_passed_over(broker: Broker, stream: Queue, alike: bool) -> None:
    _, early = selecting(broker, stream, "body LIKE '%3'")
    stream.publish(numbered(40, alike), 0)
    _, late = selecting(broker, stream, "body LIKE '%3'")
    wanted = [(3, b"0003"), (13, b"0013"), (23, b"0023"), (33, b"0033")]
    assert deliveries(early) == deliveries(late) == wanted
    _, all_of_them = selecting(broker, stream, "TRUE")
    assert offsets(all_of_them) == list(range(40))
    _, none_of_them = selecting(broker, stream, "FALSE")
    assert offsets(none_of_them) == []
    assert stream.unacked == 48


def test_only_what_is_delivered_counts_for_the_prefetch(broker: Broker, stream: Queue) -> None:
    stream.publish(numbered(100, alike=True), 0)
    channel, peer = selecting(broker, stream, "offset >= 10 AND body LIKE '%_5'", prefetch=2)
    assert offsets(peer) == [15, 25]
    channel.ack_each(1, 1, 0)
    assert offsets(peer) == [35]
    channel.settle(Settlement.REQUEUE, 2, 0, multiple=False)
    assert offsets(peer) == [45]
    channel.settle(Settlement.ACK, 4, 0, multiple=True)
    assert offsets(peer) == [55, 65]
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 7"):
        channel.settle(Settlement.ACK, 7, 0, multiple=False)
    close_channel(channel)
    assert (stream.ready, stream.unacked) == (100, 0)


def test_headers_are_asked_once_for_a_run(broker: Broker, stream: Queue) -> None:
    for region in ("eu", "us", "eu"):
        properties = Properties(headers={"region": region}, priority=5)
        stream.publish(run_of([b"a", b"b", b"c"], properties, alike=True), 0)
    channel, peer = selecting(broker, stream, "headers.region = 'eu' AND priority > 4", prefetch=4)
    assert offsets(peer) == [0, 1, 2, 6]
    channel.ack_each(1, 4, 0)
    assert offsets(peer) == [7, 8]


@given(
    wanted=st.sets(st.integers(0, 30)),
    prefetch=st.integers(1, 5),
    sizes=st.lists(st.tuples(st.integers(1, 8), st.booleans()), max_size=6),
    begins=st.integers(0, 30),
)
def test_any_choice_arrives_once_and_in_order(
    wanted: set[int], prefetch: int, sizes: list[tuple[int, bool]], begins: int
) -> None:
    broker = new_broker()
    stream = new_stream(broker)
    choices = ", ".join(map(str, wanted)) or "-1"
    channel, peer = selecting(
        broker, stream, f"offset IN ({choices})", prefetch, StreamOffset("offset", begins)
    )
    held: list[int] = []
    found: list[int] = []
    published = 0
    for size, alike in sizes:
        stream.publish(numbered(size, alike, published), 0)
        published += size
        held += offsets(peer)
        assert len(held) <= prefetch
    while held:
        found += held
        channel.settle(Settlement.ACK, len(found), 0, multiple=True)
        held = offsets(peer)
    assert found == [each for each in range(begins, published) if each in wanted]


def test_a_long_search_is_done_in_turns(broker: Broker, stream: Queue) -> None:
    number = 3 * TURN_BYTES // EVALUATION_COST_BYTES
    for first in range(0, number, 500):
        stream.publish(numbered(500, True, first), 0)
    _, peer = selecting(broker, stream, f"offset = {number - 1}")
    turns = 0
    while not (found := offsets(peer)):
        turns += 1
        assert broker.deadline() is not None
        broker.tick(turns)
    assert found == [number - 1]
    assert 2 <= turns <= 4


def test_what_is_large_counts_for_more() -> None:
    run = run_of([b"small", *[b"x" * 100_000] * 9])
    choice = MessageFilter("body = 'none'").select(run, 0, 10, 10)
    assert (choice.indexes, choice.end) == ([], 4)
    assert choice.cost > 300_000


@pytest.mark.parametrize("text", ["headers.n = 1", "headers.n = 1 AND body = 'x'"])
def test_large_headers_that_messages_share_count_for_more(text: str) -> None:
    """Headers are decoded once per run, or per message if the body matters."""
    headers: FieldTable = {"n": 0, "s": "s" * 50_000}
    run = run_of([b"x", b"x"], Properties(headers=headers), alike=True)
    choice = MessageFilter(text).select(run, 0, 1, 10)
    assert not choice.indexes
    assert choice.cost > 50_000


# ── filter values ─────────────────────────────────────────────────────────────────────────────────────────


def filtering(
    broker: Broker, stream: Queue, arguments: FieldTable, prefetch: int = 1000
) -> tuple[Channel, Peer]:
    """A consumer from the first offset, with arguments as a client sends them."""
    peer = Peer()
    channel = open_channel(broker, peer)
    parsed = parse_consumer_arguments("s", "/", "stream", arguments)
    consume(
        channel,
        stream,
        prefetch=prefetch,
        stream_offset=FIRST,
        message_filter=parsed.message_filter,
    )
    return channel, peer


def valued(value: FieldValue, count: int = 2, *, alike: bool = True) -> Run:
    """Messages with a filter value; None omits the header."""
    headers: FieldTable | None = None if value is None else {"x-stream-filter-value": value}
    return run_of([b"%d" % i for i in range(count)], Properties(headers=headers), alike=alike)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"x-stream-filter": "eu"}, [0, 1, 8, 9]),
        ({"x-stream-filter": ["eu", "us"]}, [0, 1, 2, 3, 8, 9]),
        ({"x-stream-filter": "eu", "x-stream-match-unfiltered": True}, [0, 1, 4, 5, 6, 7, 8, 9]),
        ({"x-stream-filter": "asia"}, []),
        ({"x-stream-filter": LongString(b"\xff")}, [10, 11]),
        ({"x-stream-match-unfiltered": True}, list(range(12))),
        ({"x-stream-filter": ["us", "eu"], "x-selector": "body = '1'"}, [1, 3, 9]),
    ],
)
def test_messages_are_filtered_by_their_filter_value(
    broker: Broker, stream: Queue, arguments: FieldTable, wanted: list[int], alike: bool
) -> None:
    _, early = filtering(broker, stream, arguments)
    for value in ("eu", "us", None, 5, "eu", LongString(b"\xff")):
        stream.publish(valued(value, alike=alike), 0)
    _, late = filtering(broker, stream, arguments)
    assert offsets(early) == offsets(late) == wanted


def test_filtered_messages_count_for_no_prefetch(broker: Broker, stream: Queue) -> None:
    for value in ("us", "eu", "us", "eu"):
        stream.publish(valued(value), 0)
    channel, peer = filtering(broker, stream, {"x-stream-filter": "eu"}, prefetch=3)
    assert offsets(peer) == [2, 3, 6]
    channel.ack_each(1, 3, 0)
    assert offsets(peer) == [7]


def test_a_long_filtering_is_done_in_turns(broker: Broker, stream: Queue) -> None:
    """Messages without a common header are evaluated one by one."""
    number = 3 * TURN_BYTES // EVALUATION_COST_BYTES
    for _ in range(0, number, 500):
        stream.publish(valued("us", 500, alike=False), 0)
    stream.publish(valued("eu", 1), 0)
    _, peer = filtering(broker, stream, {"x-stream-filter": "eu"})
    turns = 0
    while not offsets(peer):
        turns += 1
        assert broker.deadline() is not None
        broker.tick(turns)
    assert 2 <= turns <= 6


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-stream-filter", 5, "{unacceptable_type,signedint}"),
        ("x-stream-filter", ["eu", True], "{unacceptable_type,bool}"),
        ("x-stream-filter", [], "empty_array"),
        ("x-stream-match-unfiltered", "yes", "{unacceptable_type,longstr}"),
    ],
)
def test_malformed_filters_are_refused(argument: str, value: FieldValue, reason: str) -> None:
    with pytest.raises(PreconditionFailedError) as refused:
        parse_consumer_arguments("q", "/", "stream", {argument: value})
    assert str(refused.value) == f"invalid arg '{argument}' for queue 'q' in vhost '/': {reason}"


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize("argument", ["x-stream-filter", "x-stream-match-unfiltered"])
def test_only_streams_have_filters(queue_type: QueueType, argument: str) -> None:
    with pytest.raises(PreconditionFailedError, match=f"of queue type rabbit_{queue_type}_queue"):
        parse_consumer_arguments("q", "/", queue_type, {argument: "eu"})


# ── what is seen of a message ─────────────────────────────────────────────────────────────────────────────


def seen(text: str, properties: Properties | None = None, body: bytes = b"") -> bool:
    run = run_of([body], properties)
    run.origin = Origin("orders", "new.eu")
    return bool(MessageFilter(text).select(run, 0, 1, 1).indexes)


def test_all_fields() -> None:
    full = Properties(
        content_type="application/json",
        headers={"n": 1},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        expiration="10",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="u",
        app_id="a",
    )
    for text in (
        "exchange = 'orders' AND key LIKE 'new.%'",
        "content_type LIKE '%json' AND content_encoding IS NULL",
        "delivery_mode = 2 AND priority = 3",
        "correlation_id = 'c' AND expiration = '10' AND message_id = 'm'",
        "timestamp > 1.6e9 AND type = 't' AND user_id = 'u' AND app_id = 'a'",
        "reply_to IS NULL AND cluster_id IS NULL",
        "headers.n = 1 AND offset = 0",
        "json.price > 10 AND body LIKE '{%'",
    ):
        assert seen(text, full, b'{"price": 12.5}'), text
    assert not seen("json.price > 10")
    assert seen("headers.n IS NULL")


def test_texts_that_are_not_utf_8_are_null() -> None:
    odd = Properties(type="é", app_id="\udcff", headers={"n": LongString(b"\xff")})
    assert seen("app_id IS NULL AND type = 'é' AND headers.n <> 'a'", odd) is False
    assert seen("app_id IS NULL AND type = 'é' AND headers.n IS NOT NULL", odd)
    assert seen("body IS NULL", odd, b"\xff")


def test_large_properties_are_read_too() -> None:
    assert seen("headers.x LIKE '%y'", Properties(headers={"x": "x" * 1000 + "y"}))


# ── the argument ──────────────────────────────────────────────────────────────────────────────────────────


def refusal(value: FieldValue, queue_type: str = "stream", name: str = "q") -> str:
    arguments: FieldTable = {"x-selector": value}
    with pytest.raises(PreconditionFailedError) as refused:
        parse_consumer_arguments(name, "/", queue_type, arguments)  # type: ignore[arg-type]
    return str(refused.value)


def test_the_argument() -> None:
    settings = parse_consumer_arguments("q", "/", "stream", {"x-selector": "priority > 3"})
    assert settings.message_filter is not None
    assert parse_consumer_arguments("q", "/", "stream", {}).message_filter is None


def test_a_malformed_selector_is_refused_with_its_place() -> None:
    assert refusal("priority >") == (
        "invalid arg 'x-selector', line 1, column 11: expected a value, found the end; "
        "for queue 'q' in vhost '/'"
    )
    assert "the field sequence is not available here" in refusal("sequence > 1")
    assert refusal(5).endswith("{unacceptable_type,signedint}")
    assert "column 11" in refusal("priority >", name="q" * 255)[:200]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_only_streams_have_selectors(queue_type: str) -> None:
    told = (
        f"invalid arg 'x-selector', it needs a stream, but the queue type is {queue_type}; "
        "for queue 'q' in vhost '/'"
    )
    assert refusal("priority > 3", queue_type) == told
    assert refusal("priority >", queue_type) == told
