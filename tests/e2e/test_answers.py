"""What RabbitMQ 3.10 answers to sixty questions; recado answers the same.

A question is asked with pika. Its answer is a value that the client sees, or the level, code and
text with which the channel or the connection was closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

import pytest
from pika import BlockingConnection
from pika.credentials import PlainCredentials
from pika.exceptions import NackError

from .answers import Case, Closed, answer, channel, connection
from .traffic import Inbox, take

Question = tuple[Callable[[Case], object], object]

NO_QUEUE = channel(404, "NOT_FOUND - no queue 'nope' in vhost '/'")
NO_EXCHANGE = channel(404, "NOT_FOUND - no exchange 'nope' in vhost '/'")
LOCKED = channel(
    405,
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It"
    " could be originally declared on another connection or the exclusive property value does not"
    " match that of the original declaration.",
)


def refused(text: str) -> Closed:
    """A 403 of the channel."""
    return channel(403, f"ACCESS_REFUSED - {text}")


def failed(text: str) -> Closed:
    """A 406 of the channel."""
    return channel(406, f"PRECONDITION_FAILED - {text}")


def bad_argument(name: str, why: str) -> Closed:
    """A 406 for an argument of a queue."""
    return failed(f"invalid arg '{name}' for queue '{{name}}' in vhost '/': {why}")


DEFAULT_EXCHANGE = refused("operation not permitted on the default exchange")

# --- questions that take more than one step ------------------------------------------------------


def durable_after_all(case: Case) -> None:
    case.channel.queue_declare(case.name)
    try:
        case.channel.queue_declare(case.name, durable=True)
    finally:
        case.connection.channel().queue_delete(case.name)


def redeclared(case: Case, **arguments: object) -> int:
    case.queue(**arguments)
    return int(case.channel.queue_declare(case.name, exclusive=True).method.message_count)


def redeclared_with_an_unknown_argument(case: Case) -> int:
    case.queue()
    given = {"x-queue-type": "classic", "x-unknown": 1}
    declared = case.channel.queue_declare(case.name, exclusive=True, arguments=given)
    return int(declared.method.message_count)


def beside_an_exclusive_consumer(case: Case) -> None:
    case.channel.basic_consume(case.queue(), print, exclusive=True)
    case.channel.basic_consume(case.name, print)


def nacked_in_another_order(case: Case) -> list[tuple[bool, bytes]]:
    tags = case.held(3)
    for position in (1, 0, 2):
        case.channel.basic_nack(tags[position], requeue=True)
    return case.taken_again(3)


def recovered(case: Case) -> list[tuple[bool, bytes]]:
    case.queue(b"0", b"1", b"2")
    take(case.channel, case.name, 2, auto_ack=False)
    case.channel.basic_recover(requeue=True)
    return case.taken_again(3)


def tx_then_confirm(case: Case) -> None:
    case.channel.tx_select()
    case.channel.confirm_delivery()


def confirm_then_tx(case: Case) -> None:
    case.channel.confirm_delivery()
    case.channel.tx_select()


def to_an_internal_exchange(case: Case) -> None:
    case.bound_exchange(internal=True)
    case.publish(case.name)


def if_empty(case: Case) -> None:
    case.channel.confirm_delivery()
    case.channel.queue_delete(case.queue(b"full"), if_empty=True)


def if_unused(case: Case) -> None:
    case.channel.basic_consume(case.queue(), print)
    case.channel.queue_delete(case.name, if_unused=True)


def if_exchange_unused(case: Case) -> None:
    case.bound_exchange()
    case.channel.exchange_delete(case.name, if_unused=True)


def published_into_a_full_queue(case: Case) -> str:
    case.queue(max_length=0, overflow="reject-publish")
    case.channel.confirm_delivery()
    try:
        case.publish()
    except NackError:
        return "nack"
    return "ack"


def died_of_age(case: Case) -> object:
    letters = case.channel.queue_declare("", exclusive=True).method.queue
    case.queue(dead_letter_exchange="", dead_letter_routing_key=letters)
    case.publish(expiration="50")
    (letter,) = take(case.channel, letters)
    headers = letter.properties.headers
    (death,) = headers["x-death"]
    assert isinstance(death.pop("time"), datetime)
    assert death.pop("queue") == headers.pop("x-first-death-queue") == case.name
    assert death.pop("routing-keys") == [case.name]
    return headers


def shape(text: str, pattern: str) -> str:
    """The pattern where the text has that shape, else the text."""
    return pattern if re.fullmatch(pattern, text) else text


GENERATED_QUEUE = r"amq\.gen-[\w-]{22,}"
GENERATED_TAG = r"amq\.ctag-[\w-]{22,}"

# --- the table -----------------------------------------------------------------------------------

QUESTIONS: dict[str, Question] = {
    "passive declare of a missing queue": (
        lambda c: c.channel.queue_declare("nope", passive=True),
        NO_QUEUE,
    ),
    "passive declare of a missing exchange": (
        lambda c: c.channel.exchange_declare("nope", passive=True),
        NO_EXCHANGE,
    ),
    "consume from a missing queue": (lambda c: c.channel.basic_consume("nope", print), NO_QUEUE),
    "get from a missing queue": (lambda c: c.channel.basic_get("nope"), NO_QUEUE),
    "purge a missing queue": (lambda c: c.channel.queue_purge("nope"), NO_QUEUE),
    "delete a missing queue": (lambda c: c.channel.queue_delete("nope").method.message_count, 0),
    "delete a missing exchange": (
        lambda c: c.channel.exchange_delete("nope").method.NAME,
        "Exchange.DeleteOk",
    ),
    "bind to a missing exchange": (
        lambda c: c.channel.queue_bind(c.queue(), "nope", "key"),
        NO_EXCHANGE,
    ),
    "unbind what was never bound": (
        lambda c: c.channel.queue_unbind(c.queue(), "amq.direct", "key").method.NAME,
        "Queue.UnbindOk",
    ),
    "bind to the default exchange": (
        lambda c: c.channel.queue_bind(c.queue(), "", "key"),
        DEFAULT_EXCHANGE,
    ),
    "declare the default exchange": (
        lambda c: c.channel.exchange_declare("", "direct", durable=True),
        DEFAULT_EXCHANGE,
    ),
    "passive declare of the default exchange": (
        lambda c: c.channel.exchange_declare("", passive=True),
        DEFAULT_EXCHANGE,
    ),
    "declare an exchange amq.foo": (
        lambda c: c.channel.exchange_declare("amq.foo", "direct"),
        refused("exchange name 'amq.foo' contains reserved prefix 'amq.*'"),
    ),
    "declare a queue amq.foo": (
        lambda c: c.channel.queue_declare("amq.foo"),
        refused("queue name 'amq.foo' contains reserved prefix 'amq.*'"),
    ),
    "delete amq.direct": (
        lambda c: c.channel.exchange_delete("amq.direct"),
        refused("deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
    ),
    "declare an exchange of an unknown type": (
        lambda c: c.channel.exchange_declare(c.name, "zz"),
        connection(503, "COMMAND_INVALID - unknown exchange type 'zz'"),
    ),
    "redeclare an exchange with another type": (
        lambda c: c.channel.exchange_declare("amq.direct", "fanout", durable=True),
        failed(
            "inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
            "received 'fanout' but current is 'direct'"
        ),
    ),
    "redeclare a queue as durable": (
        durable_after_all,
        failed(
            "inequivalent arg 'durable' for queue '{name}' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
    "redeclare a queue without its ttl": (
        lambda c: redeclared(c, message_ttl=1000),
        failed(
            "inequivalent arg 'x-message-ttl' for queue '{name}' in vhost '/': "
            "received none but current is the value '1000' of type 'signedint'"
        ),
    ),
    "redeclare a queue without its type classic": (
        lambda c: redeclared(c, queue_type="classic"),
        0,
    ),
    "redeclare a queue with an unknown argument": (redeclared_with_an_unknown_argument, 0),
    "declare a negative ttl": (
        lambda c: c.queue(message_ttl=-1),
        bad_argument("x-message-ttl", "{value_negative,-1}"),
    ),
    "declare a ttl that is text": (
        lambda c: c.queue(message_ttl="abc"),
        bad_argument("x-message-ttl", '"expected integer, got longstr"'),
    ),
    "declare a queue that expires in no time": (
        lambda c: c.queue(expires=0),
        bad_argument("x-expires", "{value_zero,0}"),
    ),
    "declare a dead-letter key without an exchange": (
        lambda c: c.queue(dead_letter_routing_key="key"),
        bad_argument("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"),
    ),
    "use an exclusive queue of another connection": (
        lambda c: c.queue() and c.other().queue_declare(c.name, passive=True),
        LOCKED,
    ),
    "consume beside an exclusive consumer": (
        beside_an_exclusive_consumer,
        refused("queue '{name}' in vhost '/' in exclusive use"),
    ),
    "use a consumer tag twice": (
        lambda c: c.consume_twice("a"),
        connection(530, "NOT_ALLOWED - attempt to reuse consumer tag 'a'"),
    ),
    "ack an unknown tag": (lambda c: c.channel.basic_ack(99), failed("unknown delivery tag 99")),
    "ack all when nothing is outstanding": (lambda c: c.channel.basic_ack(0, multiple=True), None),
    "ack tag zero": (lambda c: c.channel.basic_ack(0), failed("unknown delivery tag 0")),
    "nack three in another order": (
        nacked_in_another_order,
        [(True, b"0"), (True, b"1"), (True, b"2")],
    ),
    "recover with requeue": (recovered, [(True, b"0"), (True, b"1"), (False, b"2")]),
    "recover without requeue": (
        lambda c: c.channel.basic_recover(requeue=False),
        connection(540, "NOT_IMPLEMENTED - requeue=false"),
    ),
    "publish to a missing exchange": (lambda c: c.publish("nope"), NO_EXCHANGE),
    "publish immediate": (
        lambda c: c.publish_immediate(),
        connection(540, "NOT_IMPLEMENTED - immediate=true"),
    ),
    "prefetch by size": (
        lambda c: c.channel.basic_qos(prefetch_size=10),
        connection(540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)"),
    ),
    "stop the flow": (
        lambda c: c.channel.flow(False),
        connection(540, "NOT_IMPLEMENTED - active=false"),
    ),
    "name of a server-named queue": (
        lambda c: shape(c.channel.queue_declare("", exclusive=True).method.queue, GENERATED_QUEUE),
        GENERATED_QUEUE,
    ),
    "tag of a server-named consumer": (
        lambda c: shape(c.server_named_tag(), GENERATED_TAG),
        GENERATED_TAG,
    ),
    "confirms after transactions": (
        tx_then_confirm,
        failed("cannot switch from tx to confirm mode"),
    ),
    "transactions after confirms": (
        confirm_then_tx,
        failed("cannot switch from confirm to tx mode"),
    ),
    "commit without a transaction": (
        lambda c: c.channel.tx_commit(),
        failed("channel is not transactional"),
    ),
    "roll back without a transaction": (
        lambda c: c.channel.tx_rollback(),
        failed("channel is not transactional"),
    ),
    "publish with a bad expiration": (
        lambda c: c.publish(expiration="abc"),
        failed("invalid expiration 'abc': no_integer"),
    ),
    "publish with another user's id": (
        lambda c: c.publish(user_id="bob"),
        failed("user_id property set to 'bob' but authenticated user was 'guest'"),
    ),
    "publish to an internal exchange": (
        to_an_internal_exchange,
        refused("cannot publish to internal exchange '{name}' in vhost '/'"),
    ),
    "delete a queue if empty, which it is not": (
        if_empty,
        failed("queue '{name}' in vhost '/' not empty"),
    ),
    "delete a queue if unused, which it is not": (
        if_unused,
        failed("queue '{name}' in vhost '/' in use"),
    ),
    "delete an exchange if unused, which it is not": (
        if_exchange_unused,
        failed("exchange '{name}' in vhost '/' in use"),
    ),
    "publish into a full queue": (published_into_a_full_queue, "nack"),
    "die of age": (
        died_of_age,
        {
            "x-death": [
                {"count": 1, "reason": "expired", "exchange": "", "original-expiration": "50"}
            ],
            "x-first-death-exchange": "",
            "x-first-death-reason": "expired",
        },
    ),
    "log in with a wrong password": (
        lambda c: c.connect(credentials=PlainCredentials("guest", "wrong")),
        connection(
            403,
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
            "For details see the broker logfile.",
        ),
    ),
    "open a vhost that does not exist": (
        lambda c: c.connect(virtual_host="nope"),
        connection(530, "NOT_ALLOWED - vhost nope not found"),
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer(
    connect: Callable[..., BlockingConnection], name: Callable[[str], str], question: str
) -> None:
    ask, expected = QUESTIONS[question]
    assert answer(Case(connect, name("q")), ask) == expected


def test_a_consumer_may_ask_the_same_things_while_it_consumes(
    connect: Callable[..., BlockingConnection], name: Callable[[str], str]
) -> None:
    """An error of one channel leaves the deliveries of another in peace."""
    case = Case(connect, name("q"))
    inbox = Inbox(case.connection.channel(), case.queue(), auto_ack=True)
    assert answer(case, lambda c: c.channel.basic_ack(99)) == failed("unknown delivery tag 99")
    case.channel = case.connection.channel()
    case.publish()
    inbox.wait(1)
