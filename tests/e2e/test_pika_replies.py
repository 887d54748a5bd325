"""pika: requests and replies: direct reply-to, and the user-id that a consumer may believe."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from .traffic import Inbox, bodies, put, take

REPLIES = "amq.rabbitmq.reply-to"


def test_direct_reply_to_brings_the_answer_without_a_queue(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    asking = connect().channel()
    answers = Inbox(asking, REPLIES, auto_ack=True)
    request = BasicProperties(reply_to=REPLIES, correlation_id="7")
    asking.basic_publish("", queue, b"6 x 7", request)
    (question,) = take(channel, queue)
    address = question.properties.reply_to
    assert address.startswith(REPLIES + ".")
    assert question.properties.correlation_id == "7"
    channel.basic_publish("", address, b"42", BasicProperties(correlation_id="7"))
    (answer,) = answers.wait(1)
    assert (answer.body, answer.properties.correlation_id) == (b"42", "7")
    assert (answer.exchange, answer.routing_key) == ("", address)


def test_many_requests_use_one_address(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    asking = connect().channel()
    answers = Inbox(asking, REPLIES, auto_ack=True)
    for number in range(20):
        asking.basic_publish("", queue, b"%d" % number, BasicProperties(reply_to=REPLIES))
    questions = take(channel, queue, 20)
    assert len({question.properties.reply_to for question in questions}) == 1
    for question in questions:
        channel.basic_publish("", question.properties.reply_to, question.body + b"!")
    answers.wait(20)
    assert answers.bodies == [b"%d!" % number for number in range(20)]


def test_an_address_is_no_queue_to_the_mandatory_flag(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    """RabbitMQ documents that such an answer arrives, and is returned as unroutable all the same."""
    asking = connect().channel()
    answers = Inbox(asking, REPLIES, auto_ack=True)
    asking.basic_publish("", queue, b"?", BasicProperties(reply_to=REPLIES))
    (question,) = take(channel, queue)
    with pytest.raises(UnroutableError):
        channel.basic_publish("", question.properties.reply_to, b"!", mandatory=True)
    answers.wait(1)
    assert answers.bodies == [b"!"]


def test_the_address_can_be_checked_by_a_passive_declare(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    connection = connect()
    asking = connection.channel()
    Inbox(asking, REPLIES, auto_ack=True)
    asking.basic_publish("", queue, b"?", BasicProperties(reply_to=REPLIES))
    (question,) = take(channel, queue)
    address = question.properties.reply_to
    assert channel.queue_declare(address, passive=True).method.queue == address
    connection.close()
    with pytest.raises(ChannelClosedByBroker) as gone:
        channel.queue_declare(address, passive=True)
    assert gone.value.reply_code == 404


def test_asking_without_listening_for_the_answer_is_refused(
    channel: BlockingChannel, queue: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.basic_publish("", queue, b"?", BasicProperties(reply_to=REPLIES))
    assert refused.value.reply_code == 406


def test_replies_are_consumed_without_acks_and_once_per_channel(
    connection: BlockingConnection,
) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        Inbox(connection.channel(), REPLIES, auto_ack=False)
    assert refused.value.reply_code == 406
    channel = connection.channel()
    Inbox(channel, REPLIES, auto_ack=True)
    with pytest.raises(ChannelClosedByBroker) as refused:
        Inbox(channel, REPLIES, auto_ack=True)
    assert refused.value.reply_code == 406


def test_a_plain_reply_queue_works_as_well(
    channel: BlockingChannel, queue: str, name: Callable[[str], str]
) -> None:
    replies = name("replies")
    channel.queue_declare(replies, exclusive=True)
    put(channel, queue, b"?", reply_to=replies)
    (question,) = take(channel, queue)
    assert question.properties.reply_to == replies
    put(channel, replies, b"!")
    assert bodies(take(channel, replies)) == [b"!"]


def test_the_user_id_must_be_the_user(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"signed", user_id="guest")
    (found,) = take(channel, queue)
    assert found.properties.user_id == "guest"
    with pytest.raises(ChannelClosedByBroker) as refused:
        put(channel, queue, b"forged", user_id="somebody")
    assert refused.value.reply_code == 406
