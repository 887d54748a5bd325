"""Users who lack permissions, and every method that needs one.

Everything happens in the vhost `VHOST`, with the objects of `OBJECTS`. Each user lacks one permission on one of
them, or on all. `people` tells RabbitMQ of the users when it starts.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

from pamqp import commands as c
from pamqp import frame
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.common import FieldTable
from pamqp.header import ContentHeader

VHOST: Final = "matrix"
FORBIDDEN_VHOST: Final = "forbidden"
PASSWORD: Final = "p"
CHANNEL: Final = 1

QUEUE, EXCHANGE, TOPIC, OTHER, INTERNAL = "queue", "exchange", "topic", "other", "internal"
REPLY_TO: Final = "amq.rabbitmq.reply-to"
NEW: Final = "new"  # does not exist
KINDS: Final = ("configure", "write", "read")
NAMES: Final = (QUEUE, EXCHANGE, TOPIC, OTHER, NEW, r"amq\.default")

OBJECTS: tuple[Frame, ...] = (
    c.Queue.Declare(queue=QUEUE),
    c.Exchange.Declare(exchange=EXCHANGE, exchange_type="direct"),
    c.Exchange.Declare(exchange=TOPIC, exchange_type="topic"),
    c.Exchange.Declare(exchange=OTHER, exchange_type="fanout"),
    c.Exchange.Declare(exchange=INTERNAL, exchange_type="fanout", internal=True),
    c.Queue.Bind(queue=QUEUE, exchange=EXCHANGE, routing_key="k"),
    c.Exchange.Bind(destination=OTHER, source=EXCHANGE, routing_key="k"),
)


def _patterns() -> dict[str, dict[str, str]]:
    users: dict[str, dict[str, str]] = {}
    for allowed in itertools.product((True, False), repeat=3):
        kinds = [kind for kind, is_allowed in zip(KINDS, allowed, strict=True) if is_allowed]
        users[f"only {' '.join(kinds) or 'nothing'}"] = {
            kind: ".*" if kind in kinds else "^$" for kind in KINDS
        }
    for kind, name in itertools.product(KINDS, NAMES):
        users[f"no {kind} on {name}"] = {
            each: f"^(?!{name}$)" if each == kind else ".*" for each in KINDS
        }
    users["topics"] = dict.fromkeys(KINDS, ".*")
    return users


USERS: Final = _patterns()
"""The patterns of each user in `VHOST`."""
FULL: Final = "only configure write read"

DEFINITIONS: dict[str, Any] = {
    "vhosts": [{"name": VHOST}, {"name": FORBIDDEN_VHOST}],
    "users": [{"name": name, "password": PASSWORD, "tags": ""} for name in USERS],
    "permissions": [{"user": name, "vhost": VHOST, **rights} for name, rights in USERS.items()],
    "topic_permissions": [
        {
            "user": "topics",
            "vhost": VHOST,
            "exchange": TOPIC,
            "write": r"^{username}\.w",
            "read": "^r",
        }
    ],
}


class Case(NamedTuple):
    """Methods on a new channel; whether the objects have to be declared again if they are allowed."""

    name: str
    methods: tuple[Frame | bytes, ...]
    changes: bool = False


def _publish(exchange: str, key: str = "k", **properties: Any) -> tuple[Frame | bytes, ...]:
    return tuple(
        frame.marshal(each, CHANNEL)
        for each in (
            c.Basic.Publish(exchange=exchange, routing_key=key),
            ContentHeader(0, 1, c.Basic.Properties(**properties)),
            ContentBody(b"x"),
        )
    )


def _queue(name: str, **options: Any) -> Frame:
    return c.Queue.Declare(queue=name, **options)


def _exchange(name: str, **options: Any) -> Frame:
    return c.Exchange.Declare(exchange=name, exchange_type="direct", **options)


def _dead_letters(exchange: str) -> FieldTable:
    return {"x-dead-letter-exchange": exchange}


def _alternate(exchange: str) -> FieldTable:
    return {"alternate-exchange": exchange}


CASES: tuple[Case, ...] = (
    # queues
    Case("declare a queue", (_queue(NEW),), True),
    Case("declare a queue that exists", (_queue(QUEUE),)),
    Case("declare a queue that differs", (_queue(QUEUE, arguments={"x-max-length": 1}),)),
    Case("declare a queue without a name", (_queue("", exclusive=True),)),
    Case("declare a queue with invalid arguments", (_queue(NEW, arguments={"x-expires": -1}),)),
    Case("declare a queue with a reserved name", (_queue("amq.new"),)),
    Case("dead letters to an exchange", (_queue(NEW, arguments=_dead_letters(OTHER)),), True),
    Case("dead letters to no exchange", (_queue(NEW, arguments=_dead_letters("none")),), True),
    Case("dead letters to the default", (_queue(NEW, arguments=_dead_letters("")),), True),
    Case("dead letters of a queue that exists", (_queue(QUEUE, arguments=_dead_letters(OTHER)),)),
    Case("passive queue", (_queue(QUEUE, passive=True),)),
    Case("passive queue that is absent", (_queue(NEW, passive=True),)),
    Case("bind a queue", (c.Queue.Bind(queue=QUEUE, exchange=EXCHANGE, routing_key="k"),)),
    Case("bind a queue to a topic", (c.Queue.Bind(queue=QUEUE, exchange=TOPIC, routing_key="r"),)),
    Case("bind to a forbidden topic", (c.Queue.Bind(queue=QUEUE, exchange=TOPIC, routing_key="x"),)),
    Case("bind to the default exchange", (c.Queue.Bind(queue=QUEUE, exchange="", routing_key="k"),)),
    Case("bind to an absent exchange", (c.Queue.Bind(queue=QUEUE, exchange=NEW, routing_key="k"),)),
    Case("bind an absent queue", (c.Queue.Bind(queue=NEW, exchange=EXCHANGE, routing_key="k"),)),
    Case("unbind a queue", (c.Queue.Unbind(queue=QUEUE, exchange=EXCHANGE, routing_key="k"),), True),
    Case("unbind a topic", (c.Queue.Unbind(queue=QUEUE, exchange=TOPIC, routing_key="x"),)),
    Case("purge", (c.Queue.Purge(queue=QUEUE),)),
    Case("purge an absent queue", (c.Queue.Purge(queue=NEW),)),
    Case("delete a queue", (c.Queue.Delete(queue=QUEUE),), True),
    Case("delete an absent queue", (c.Queue.Delete(queue=NEW),)),
    # exchanges
    Case("declare an exchange", (_exchange(NEW),), True),
    Case("declare an exchange that exists", (_exchange(EXCHANGE),)),
    Case("declare an exchange that differs", (_exchange(TOPIC),)),
    Case("declare an exchange of an unknown type", (c.Exchange.Declare(exchange=NEW, exchange_type="none"),)),
    Case("declare an exchange with a reserved name", (_exchange("amq.new"),)),
    Case("alternate exchange", (_exchange(NEW, arguments=_alternate(OTHER)),), True),
    Case("alternate exchange that is absent", (_exchange(NEW, arguments=_alternate("none")),), True),
    Case("alternate of an exchange that exists", (_exchange(EXCHANGE, arguments=_alternate(OTHER)),)),
    Case("passive exchange", (_exchange(EXCHANGE, passive=True),)),
    Case("passive exchange that is absent", (_exchange(NEW, passive=True),)),
    Case("bind an exchange", (c.Exchange.Bind(destination=OTHER, source=EXCHANGE, routing_key="k"),)),
    Case("bind an exchange to a topic", (c.Exchange.Bind(destination=OTHER, source=TOPIC, routing_key="r"),)),
    Case("bind an exchange to a forbidden topic", (c.Exchange.Bind(destination=OTHER, source=TOPIC, routing_key="x"),)),
    Case("bind an absent exchange", (c.Exchange.Bind(destination=NEW, source=EXCHANGE, routing_key="k"),)),
    Case("unbind an exchange", (c.Exchange.Unbind(destination=OTHER, source=EXCHANGE, routing_key="k"),), True),
    Case("delete an exchange", (c.Exchange.Delete(exchange=EXCHANGE),), True),
    Case("delete an absent exchange", (c.Exchange.Delete(exchange=NEW),)),
    Case("delete the default exchange", (c.Exchange.Delete(exchange=""),)),
    # messages
    Case("publish to an exchange", _publish(EXCHANGE)),
    Case("publish to the default exchange", _publish("", QUEUE)),
    Case("publish to an absent exchange", _publish(NEW)),
    Case("publish to an internal exchange", _publish(INTERNAL)),
    Case("publish to a topic", _publish(TOPIC, "topics.w")),
    Case("publish to a forbidden topic", _publish(TOPIC, "x")),
    Case("publish with CC to a forbidden topic", _publish(TOPIC, "topics.w", headers={"CC": ["x"]})),
    Case("publish with BCC to a forbidden topic", _publish(TOPIC, "topics.w", headers={"BCC": ["x"]})),
    Case("publish as another user", _publish(EXCHANGE, user_id="guest")),
    Case("publish in a transaction", (c.Tx.Select(), *_publish(EXCHANGE))),
    Case("publish with confirms", (c.Confirm.Select(), *_publish(EXCHANGE))),
    Case("receive direct replies", (c.Basic.Consume(queue=REPLY_TO, no_ack=True),)),
    Case("send a direct reply", _publish("", "amq.rabbitmq.reply-to.none")),
    Case("get", (c.Basic.Get(queue=QUEUE),)),
    Case("get from an absent queue", (c.Basic.Get(queue=NEW),)),
    Case("consume", (c.Basic.Consume(queue=QUEUE),)),
    Case("consume exclusively", (c.Basic.Consume(queue=QUEUE, exclusive=True),)),
    Case("consume from an absent queue", (c.Basic.Consume(queue=NEW),)),
    Case("cancel", (c.Basic.Cancel(consumer_tag="none"),)),
    Case("ack", (c.Basic.Get(queue=QUEUE), c.Basic.Ack(delivery_tag=1))),
    Case("nack", (c.Basic.Get(queue=QUEUE), c.Basic.Nack(delivery_tag=1))),
    Case("reject", (c.Basic.Get(queue=QUEUE), c.Basic.Reject(delivery_tag=1))),
    Case("ack of nothing", (c.Basic.Ack(delivery_tag=7),)),
    Case("recover", (c.Basic.Recover(requeue=True),)),
    Case("qos", (c.Basic.Qos(prefetch_count=1),)),
    Case("transaction", (c.Tx.Select(), c.Tx.Rollback())),
    Case("confirms", (c.Confirm.Select(),)),
    Case("flow", (c.Channel.Flow(active=True),)),
)  # fmt: skip


class Difference(NamedTuple):
    """Cases in which the brokers differ; docs/compatibility.md has a row that begins with `row`."""

    row: str
    user: str
    cases: frozenset[str]
    rabbitmq: frozenset[str]
    recado: str

    def covers(self, user: str, case: str, rabbitmq: str, recado: str) -> bool:
        return (
            user == self.user
            and case in self.cases
            and rabbitmq in self.rabbitmq
            and recado == self.recado
        )


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "passive declare without any permission on the name",
        "only nothing",
        frozenset(case.name for case in CASES if case.name.startswith("passive")),
        frozenset({"allowed", "channel 404"}),
        "channel 403",
    ),
    Difference(
        "topic permissions of a message with `CC` or `BCC`",
        "topics",
        frozenset(
            {"publish with CC to a forbidden topic", "publish with BCC to a forbidden topic"}
        ),
        frozenset({"allowed"}),
        "channel 403",
    ),
)
