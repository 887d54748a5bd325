"""Vhosts are worlds of their own, and a user does in them what the permissions allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.credentials import PlainCredentials
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError

from .people import LIMITED, OTHER, SECRET
from .traffic import Inbox, bodies, get, put, take

Connect = Callable[..., BlockingConnection]
Name = Callable[[str], str]


@pytest.fixture
def limited(connect: Connect) -> BlockingConnection:
    """The user with few rights, in the other vhost."""
    return connect(credentials=PlainCredentials(LIMITED, SECRET), virtual_host=OTHER)


@pytest.fixture
def owner(connect: Connect) -> BlockingChannel:
    """guest, in the other vhost."""
    channel = connect(virtual_host=OTHER).channel()
    channel.confirm_delivery()
    return channel


def test_the_same_name_in_two_vhosts_is_two_queues(
    channel: BlockingChannel, owner: BlockingChannel, name: Name
) -> None:
    queue = name("twin")
    for each in (channel, owner):
        each.queue_declare(queue, exclusive=True)
    put(channel, queue, b"here")
    put(owner, queue, b"there")
    assert bodies(take(channel, queue)) == [b"here"]
    assert bodies(take(owner, queue)) == [b"there"]
    assert get(channel, queue) is None


def test_a_user_without_rights_in_a_vhost_does_not_get_in(connect: Connect) -> None:
    with pytest.raises(ProbableAccessDeniedError) as refused:
        connect(credentials=PlainCredentials(LIMITED, SECRET))
    assert f"access to vhost '/' refused for user '{LIMITED}'" in str(refused.value)


def test_what_is_allowed_works(limited: BlockingConnection, name: Name) -> None:
    channel = limited.channel()
    channel.confirm_delivery()
    queue, exchange = name("mine"), name("mine")
    channel.queue_declare(queue, exclusive=True)
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channel.queue_bind(queue, exchange)
    inbox = Inbox(channel, queue, auto_ack=True)
    channel.basic_publish(exchange, "", b"by my exchange")
    channel.basic_publish("", queue, b"by name")
    inbox.wait(2)
    assert inbox.bodies == [b"by my exchange", b"by name"]
    channel.basic_publish("amq.topic", "nobody.listens", b"allowed")


def test_the_user_id_of_a_limited_user(
    limited: BlockingConnection, owner: BlockingChannel, name: Name
) -> None:
    queue = name("mine")
    owner.queue_declare(queue, exclusive=True)
    put(limited.channel(), queue, b"signed", user_id=LIMITED)
    (found,) = take(owner, queue)
    assert found.properties.user_id == LIMITED


REFUSED: dict[str, tuple[Callable[[BlockingChannel, str, str], object], str]] = {
    "declare a queue": (lambda c, queue, _: c.queue_declare(queue), "queue"),
    "declare an exchange": (lambda c, _, exchange: c.exchange_declare(exchange), "exchange"),
    "delete a queue": (lambda c, queue, _: c.queue_delete(queue), "queue"),
    "delete an exchange": (lambda c, _, exchange: c.exchange_delete(exchange), "exchange"),
    "get": (lambda c, queue, _: c.basic_get(queue), "queue"),
    "consume": (lambda c, queue, _: c.basic_consume(queue, print), "queue"),
    "purge": (lambda c, queue, _: c.queue_purge(queue), "queue"),
    "publish": (lambda c, _, exchange: publish(c, exchange), "exchange"),
    "bind a queue": (lambda c, queue, _: c.queue_bind(queue, "amq.topic", "k"), "queue"),
    "unbind a queue": (lambda c, queue, _: c.queue_unbind(queue, "amq.topic", "k"), "queue"),
    "bind to an exchange": (lambda c, _, exchange: bind_mine(c, exchange), "exchange"),
    "bind an exchange": (
        lambda c, _, exchange: c.exchange_bind(exchange, "amq.topic", "k"),
        "exchange",
    ),
    "dead letters to an exchange": (
        lambda c, _, exchange: declare_mine(c, {"x-dead-letter-exchange": exchange}),
        "exchange",
    ),
    "an alternate exchange": (
        lambda c, _, exchange: c.exchange_declare(
            "mine-with-alternate", "fanout", arguments={"alternate-exchange": exchange}
        ),
        "exchange",
    ),
}


def publish(channel: BlockingChannel, exchange: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish(exchange, "key", b"forbidden")


def declare_mine(channel: BlockingChannel, arguments: dict[str, object] | None = None) -> str:
    queue: str = channel.queue_declare(
        "mine-and-more", exclusive=True, arguments=arguments
    ).method.queue
    return queue


def bind_mine(channel: BlockingChannel, exchange: str) -> None:
    channel.queue_bind(declare_mine(channel), exchange, "key")


@pytest.mark.parametrize("action", REFUSED)
def test_what_is_not_allowed_is_refused_with_403(
    owner: BlockingChannel, limited: BlockingConnection, name: Name, action: str
) -> None:
    queue, exchange = name("theirs"), name("theirs")
    owner.queue_declare(queue, auto_delete=True)
    owner.exchange_declare(exchange, "fanout", auto_delete=True)
    owner.queue_bind(queue, exchange)
    act, kind = REFUSED[action]
    with pytest.raises(ChannelClosedByBroker) as refused:
        act(limited.channel(), queue, exchange)
    resource = {"queue": queue, "exchange": exchange}[kind]
    assert refused.value.reply_code == 403
    assert refused.value.reply_text == (
        f"ACCESS_REFUSED - access to {kind} '{resource}' in vhost '{OTHER}'"
        f" refused for user '{LIMITED}'"
    )
    owner.queue_delete(queue)


def test_patterns_are_searched_for_in_names(
    owner: BlockingChannel, limited: BlockingConnection, name: Name
) -> None:
    queue = name("wide-open")
    owner.queue_declare(queue, auto_delete=True)
    put(owner, queue, b"readable")
    assert bodies(take(limited.channel(), queue)) == [b"readable"]
    with pytest.raises(ChannelClosedByBroker) as refused:
        limited.channel().queue_delete(queue)
    assert refused.value.reply_code == 403
    owner.queue_delete(queue)


def test_a_refusal_leaves_the_connection_and_its_channels_open(
    limited: BlockingConnection, name: Name
) -> None:
    working = limited.channel()
    queue = name("mine")
    working.queue_declare(queue, exclusive=True)
    with pytest.raises(ChannelClosedByBroker):
        limited.channel().queue_declare(name("theirs"))
    put(working, queue, b"still here")
    assert bodies(take(working, queue)) == [b"still here"]
