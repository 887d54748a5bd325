"""pika: where messages go that a queue gives up, and what their x-death header tells."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .traffic import Delivery, Inbox, await_depth, bodies, get, put, take


@pytest.fixture
def graveyard(channel: BlockingChannel, name: Callable[[str], str]) -> str:
    """The queue that dead letters reach by its name."""
    graveyard = name("graveyard")
    channel.queue_declare(graveyard, exclusive=True)
    return graveyard


@pytest.fixture
def mortal(
    channel: BlockingChannel, graveyard: str, name: Callable[[str], str]
) -> Callable[..., str]:
    """Declares queues whose dead letters go to the graveyard."""

    def declare(**arguments: object) -> str:
        queue = name("mortal")
        given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": graveyard}
        channel.queue_declare(queue, exclusive=True, arguments={**letters, **given})
        return queue

    return declare


def deaths(letter: Delivery) -> list[dict[str, object]]:
    """The x-death entries, each checked for its time and freed of it."""
    entries = letter.properties.headers["x-death"]
    for entry in entries:
        assert isinstance(entry.pop("time"), datetime)
    return list(entries)


def test_a_rejected_message_tells_where_it_died(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str]
) -> None:
    queue = mortal()
    put(channel, queue, b"bad", headers={"own": "header"}, message_id="m", delivery_mode=2)
    (held,) = take(channel, queue, auto_ack=False)
    channel.basic_reject(held.tag, requeue=False)
    (letter,) = take(channel, graveyard)
    assert (letter.body, letter.exchange, letter.routing_key) == (b"bad", "", graveyard)
    assert (letter.properties.message_id, letter.properties.delivery_mode) == ("m", 2)
    assert not letter.redelivered
    assert deaths(letter) == [
        {"count": 1, "reason": "rejected", "queue": queue, "exchange": "", "routing-keys": [queue]}
    ]
    headers = dict(letter.properties.headers)
    headers.pop("x-death")
    assert headers == {
        "own": "header",
        "x-first-death-queue": queue,
        "x-first-death-reason": "rejected",
        "x-first-death-exchange": "",
    }


def test_an_expired_message_loses_its_expiration_and_keeps_it_in_x_death(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str]
) -> None:
    queue = mortal()
    put(channel, queue, b"late", expiration="30")
    (letter,) = take(channel, graveyard)
    assert letter.properties.expiration is None
    (death,) = deaths(letter)
    assert (death["reason"], death["original-expiration"]) == ("expired", "30")


def test_expired_messages_keep_their_order(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str]
) -> None:
    queue = mortal(message_ttl=50)
    sent = [b"%d" % number for number in range(100)]
    put(channel, queue, *sent)
    assert bodies(take(channel, graveyard, 100)) == sent


def test_the_head_dropped_by_a_full_queue_is_a_dead_letter(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str]
) -> None:
    queue = mortal(max_length=2)
    put(channel, queue, b"1", b"2", b"3")
    (letter,) = take(channel, graveyard)
    (death,) = deaths(letter)
    assert (letter.body, death["reason"]) == (b"1", "maxlen")
    assert bodies(take(channel, queue, 2)) == [b"2", b"3"]


def test_without_a_key_of_its_own_the_message_keeps_its_keys(
    channel: BlockingChannel, graveyard: str, name: Callable[[str], str]
) -> None:
    queue, exchange = name("mortal"), name("letters")
    channel.exchange_declare(exchange, "topic", auto_delete=True)
    channel.queue_bind(graveyard, exchange, "a.#")
    channel.queue_declare(queue, exclusive=True, arguments={"x-dead-letter-exchange": exchange})
    channel.queue_bind(queue, "amq.topic", f"a.{queue}")
    channel.basic_publish("amq.topic", f"a.{queue}", b"bad")
    (held,) = take(channel, queue, auto_ack=False)
    channel.basic_nack(held.tag, requeue=False)
    (letter,) = take(channel, graveyard)
    assert (letter.exchange, letter.routing_key) == (exchange, f"a.{queue}")
    (death,) = deaths(letter)
    assert (death["exchange"], death["routing-keys"]) == ("amq.topic", [f"a.{queue}"])


def test_a_missing_dead_letter_exchange_drops_silently(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("mortal")
    arguments = {"x-dead-letter-exchange": name("missing")}
    channel.queue_declare(queue, exclusive=True, arguments=arguments)
    put(channel, queue, b"bad", b"good")
    (held,) = take(channel, queue, auto_ack=False)
    channel.basic_reject(held.tag, requeue=False)
    assert bodies(take(channel, queue)) == [b"good"]
    assert get(channel, queue) is None


def test_retries_through_a_waiting_queue_are_counted(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    work, waiting = name("work"), name("waiting")
    for queue, onward, extra in ((work, waiting, {}), (waiting, work, {"x-message-ttl": 20})):
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": onward}
        channel.queue_declare(queue, exclusive=True, arguments={**letters, **extra})
    put(channel, work, b"again")
    inbox = Inbox(channel, work)
    for attempt in range(1, 4):
        delivery = inbox.wait(attempt)[-1]
        if attempt > 1:
            newest, oldest = deaths(delivery)
            assert (newest["queue"], newest["reason"]) == (waiting, "expired")
            assert (oldest["queue"], oldest["reason"]) == (work, "rejected")
            assert newest["count"] == oldest["count"] == attempt - 1
            assert delivery.properties.headers["x-first-death-queue"] == work
        channel.basic_reject(delivery.tag, requeue=False)


def test_a_message_that_expires_in_a_circle_is_dropped(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("ouroboros")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    channel.queue_declare(queue, exclusive=True, arguments={**letters, "x-message-ttl": 20})
    put(channel, queue, b"round")
    await_depth(channel, queue, 0)


def test_purged_and_deleted_messages_are_no_dead_letters(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str]
) -> None:
    queue = mortal()
    put(channel, queue, b"1")
    assert channel.queue_purge(queue).method.message_count == 1
    put(channel, queue, b"2")
    assert channel.queue_delete(queue).method.message_count == 1
    put(channel, graveyard, b"only this")
    assert bodies(take(channel, graveyard)) == [b"only this"]
    assert get(channel, graveyard) is None


def test_cc_keys_are_told_and_not_followed_where_the_queue_names_a_key(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str], queue: str
) -> None:
    dying = mortal()
    headers = {"CC": [queue], "BCC": [queue], "own": 1}
    put(channel, dying, b"copied", headers=headers, priority=4, expiration="60000")
    (copy,) = take(channel, queue)
    assert copy.properties.headers == {"CC": [queue], "own": 1}
    (held,) = take(channel, dying, auto_ack=False)
    channel.basic_reject(held.tag, requeue=False)
    (letter,) = take(channel, graveyard)
    (death,) = deaths(letter)
    assert death["routing-keys"] == [dying, queue]
    assert death["original-expiration"] == "60000"
    assert "CC" not in letter.properties.headers
    assert (letter.properties.priority, letter.properties.expiration) == (4, None)
    assert get(channel, queue) is None


def test_headers_keep_their_types_through_death(
    channel: BlockingChannel, graveyard: str, mortal: Callable[..., str]
) -> None:
    headers = {
        "small": -1,
        "large": 2**62,
        "decimal": Decimal("1.25"),
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "bytes": b"\xff\x00",
        "nothing": None,
        "nested": [1, [2, {"x": b"y"}]],
        "table": {},
        "text": "",
    }
    put(channel, mortal(message_ttl=0), b"", headers=headers)
    (letter,) = take(channel, graveyard)
    after = {key: letter.properties.headers[key] for key in headers}
    assert repr(sorted(after.items())) == repr(
        sorted({**headers, "large": type(after["large"])(2**62)}.items())
    )


def test_the_alternate_exchange_takes_dead_letters_too(
    channel: BlockingChannel, graveyard: str, queue: str, name: Callable[[str], str]
) -> None:
    alternate, letters, mortal = name("alternate"), name("letters"), name("mortal")
    channel.exchange_declare(alternate, "fanout", auto_delete=True)
    channel.queue_bind(graveyard, alternate)
    arguments = {"alternate-exchange": alternate}
    channel.exchange_declare(letters, "direct", auto_delete=True, arguments=arguments)
    channel.queue_bind(queue, letters, "another key")
    channel.queue_declare(mortal, exclusive=True, arguments={"x-dead-letter-exchange": letters})
    put(channel, mortal, b"lost and found")
    (held,) = take(channel, mortal, auto_ack=False)
    channel.basic_reject(held.tag, requeue=False)
    (letter,) = take(channel, graveyard)
    assert (letter.body, letter.exchange) == (b"lost and found", letters)
