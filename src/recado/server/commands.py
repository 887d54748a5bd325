"""What a client asks for on a channel, one function per method: check, do, answer.

The order in each is RabbitMQ's, because it shows: first permission, then existence, then equivalence. Functions
are found through `COMMANDS`; connection and channel methods are the session's own affair.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from recado.amqp import methods as m
from recado.amqp.errors import NotImplementedHere, PreconditionFailed
from recado.amqp.facts import REPLY_HERE
from recado.broker.arguments import (
    ConsumerSettings,
    parse_consumer_arguments,
    parse_queue_arguments,
)
from recado.broker.channel import Channel, Settlement
from recado.broker.queue import Queue

from .names import (
    binding_names,
    check_binding,
    check_some_access,
    queue_name,
    readable_queue,
    strip_line_breaks,
)

if TYPE_CHECKING:
    from .session import Session

M = TypeVar("M", bound=m.Method)
Command = Callable[["Session", Channel, M, int], m.Method | None]

COMMANDS: dict[type[m.Method], Command[Any]] = {}
"""Each answers by itself, or returns a reply that is sent when all is done that it has left to `Cleanup`."""


def _command(method: type[M]) -> Callable[[Command[M]], Command[M]]:
    def register(command: Command[M]) -> Command[M]:
        COMMANDS[method] = command
        return command

    return register


# ── exchanges ─────────────────────────────────────────────────────────────────────────────────────────────


@_command(m.ExchangeDeclare)
def exchange_declare(
    session: "Session", channel: Channel, method: m.ExchangeDeclare, now: int
) -> None:
    access, vhost = channel.admission.access, channel.admission.vhost
    name = strip_line_breaks(method.exchange)
    if method.passive:
        check_some_access(channel, "exchange", name)
        vhost.expect_exchange(name)
    else:
        access.check_configure("exchange", name)
        alternate = method.arguments.get("alternate-exchange")
        if isinstance(alternate, str):
            access.check_read("exchange", name)
            access.check_write("exchange", alternate)
        vhost.declare_exchange(
            name,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    if not method.no_wait:
        channel.send(m.ExchangeDeclareOk())


@_command(m.ExchangeDelete)
def exchange_delete(
    session: "Session", channel: Channel, method: m.ExchangeDelete, now: int
) -> None:
    name = strip_line_breaks(method.exchange)
    channel.admission.access.check_configure("exchange", name)
    channel.admission.vhost.delete_exchange(name, if_unused=method.if_unused)
    if not method.no_wait:
        channel.send(m.ExchangeDeleteOk())


@_command(m.ExchangeBind)
def exchange_bind(session: "Session", channel: Channel, method: m.ExchangeBind, now: int) -> None:
    destination, source = map(strip_line_breaks, (method.destination, method.source))
    check_binding(channel, "exchange", destination, source, method.routing_key)
    channel.admission.vhost.bind_exchange(destination, source, method.routing_key, method.arguments)
    if not method.no_wait:
        channel.send(m.ExchangeBindOk())


@_command(m.ExchangeUnbind)
def exchange_unbind(
    session: "Session", channel: Channel, method: m.ExchangeUnbind, now: int
) -> None:
    destination, source = map(strip_line_breaks, (method.destination, method.source))
    check_binding(channel, "exchange", destination, source, method.routing_key)
    channel.admission.vhost.unbind_exchange(
        destination, source, method.routing_key, method.arguments
    )
    if not method.no_wait:
        channel.send(m.ExchangeUnbindOk())


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────


@_command(m.QueueDeclare)
def queue_declare(session: "Session", channel: Channel, method: m.QueueDeclare, now: int) -> None:
    if method.queue == REPLY_HERE:
        ready, consumers, name = 0, 1, REPLY_HERE
    else:
        if method.passive:
            queue = _existing_queue(session, channel, strip_line_breaks(method.queue))
        else:
            queue = _declared_queue(session, channel, method, now)
        queue.touch(now)
        channel.last_queue = name = queue.name
        ready, consumers = queue.ready, len(queue.consumers)
    if not method.no_wait:
        channel.send(m.QueueDeclareOk(name, ready, consumers))


def _existing_queue(session: "Session", channel: Channel, name: str) -> Queue:
    check_some_access(channel, "queue", name)
    if name.startswith(
        REPLY_HERE
    ):  # any client may ask whether an address for replies still exists
        return channel.admission.vhost.find_queue(name)
    return channel.admission.vhost.find_queue_for(session, name)


def _declared_queue(
    session: "Session", channel: Channel, method: m.QueueDeclare, now: int
) -> Queue:
    access, vhost = channel.admission.access, channel.admission.vhost
    given = strip_line_breaks(method.queue)
    name = given or f"amq.gen-{session.broker.new_name()}"
    access.check_configure("queue", name)
    settings = parse_queue_arguments(
        name,
        vhost.name,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
        server_named=not given,
        default_type=vhost.settings.default_queue_type,
    )
    if settings.dead_letter_exchange is not None:
        access.check_read("queue", name)
        access.check_write("exchange", settings.dead_letter_exchange)
    if given:
        existing = vhost.find_declared(name, settings, session)
        if existing is not None:
            return existing
    session.broker.check_queue_limit(vhost, name)
    owner = session if settings.exclusive else None
    return session.broker.create_queue(vhost, name, settings, owner, now)


@_command(m.QueueBind)
def queue_bind(session: "Session", channel: Channel, method: m.QueueBind, now: int) -> None:
    name, key = binding_names(channel, method.queue, method.routing_key)
    exchange = strip_line_breaks(method.exchange)
    check_binding(channel, "queue", name, exchange, key)
    channel.admission.vhost.bind_queue(name, exchange, key, method.arguments, connection=session)
    if not method.no_wait:
        channel.send(m.QueueBindOk())


@_command(m.QueueUnbind)
def queue_unbind(session: "Session", channel: Channel, method: m.QueueUnbind, now: int) -> None:
    name, key = binding_names(channel, method.queue, method.routing_key)
    exchange = strip_line_breaks(method.exchange)
    check_binding(channel, "queue", name, exchange, key)
    channel.admission.vhost.unbind_queue(name, exchange, key, method.arguments, connection=session)
    channel.send(m.QueueUnbindOk())


@_command(m.QueuePurge)
def queue_purge(
    session: "Session", channel: Channel, method: m.QueuePurge, now: int
) -> m.Method | None:
    count = readable_queue(session, channel, method.queue).purge()
    return None if method.no_wait else m.QueuePurgeOk(count)


@_command(m.QueueDelete)
def queue_delete(session: "Session", channel: Channel, method: m.QueueDelete, now: int) -> None:
    name = strip_line_breaks(queue_name(channel, method.queue))
    channel.admission.access.check_configure("queue", name)
    vhost = channel.admission.vhost

    def answer(count: int) -> None:
        if not method.no_wait:
            channel.send(m.QueueDeleteOk(count))

    if name not in vhost.queues:
        answer(0)
        return
    queue = vhost.find_queue_for(session, name)
    session.broker.delete_queue(
        queue, now, if_unused=method.if_unused, if_empty=method.if_empty, answer=answer
    )


# ── consuming ─────────────────────────────────────────────────────────────────────────────────────────────


@_command(m.BasicQos)
def basic_qos(session: "Session", channel: Channel, method: m.BasicQos, now: int) -> None:
    if method.prefetch_size:
        raise NotImplementedHere(f"prefetch_size!=0 ({method.prefetch_size})")
    channel.send(m.BasicQosOk())
    if method.global_:
        channel.limit = method.prefetch_count
        channel.resume(now)
    else:
        channel.prefetch = method.prefetch_count  # of consumers to come


@_command(m.BasicConsume)
def basic_consume(session: "Session", channel: Channel, method: m.BasicConsume, now: int) -> None:
    tag = method.consumer_tag or f"amq.ctag-{session.broker.new_name()}"
    vhost = channel.admission.vhost.name
    if method.queue == REPLY_HERE:
        channel.check_new_tag(tag)
        settings = parse_consumer_arguments(REPLY_HERE, vhost, "classic", method.arguments)
        queue = _reply_queue(session, channel, method, settings, now)
    else:
        queue = readable_queue(session, channel, method.queue)
        kind = queue.settings.queue_type
        settings = parse_consumer_arguments(queue.name, vhost, kind, method.arguments)
    channel.consume(queue, tag, settings, no_ack=method.no_ack, exclusive=method.exclusive, now=now)
    if not method.no_wait:
        channel.send(m.BasicConsumeOk(tag))
    queue.deal(now)


def _reply_queue(
    session: "Session",
    channel: Channel,
    method: m.BasicConsume,
    settings: ConsumerSettings,
    now: int,
) -> Queue:
    """The last thing that may be refused comes before it is made: nobody would delete it."""
    if not method.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if settings.wire_tap:
        raise PreconditionFailed("direct replies cannot be tapped")
    if channel.publisher.reply_queue in channel.admission.vhost.queues:
        raise PreconditionFailed("reply consumer already set")
    queue = session.broker.create_reply_queue(channel.admission.vhost, now)
    channel.publisher.reply_queue = queue.name
    return queue


@_command(m.BasicCancel)
def basic_cancel(session: "Session", channel: Channel, method: m.BasicCancel, now: int) -> None:
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is not None:
        session.broker.cancel(consumer, now)
    if not method.no_wait:
        channel.send(m.BasicCancelOk(method.consumer_tag))


@_command(m.BasicGet)
def basic_get(session: "Session", channel: Channel, method: m.BasicGet, now: int) -> None:
    queue = readable_queue(session, channel, method.queue)
    if not channel.get(queue, no_ack=method.no_ack, now=now):
        channel.send(m.BasicGetEmpty())


@_command(m.BasicAck)
def basic_ack(session: "Session", channel: Channel, method: m.BasicAck, now: int) -> None:
    channel.settle(Settlement.ACK, method.delivery_tag, now, multiple=method.multiple)


@_command(m.BasicNack)
def basic_nack(session: "Session", channel: Channel, method: m.BasicNack, now: int) -> None:
    how = Settlement.REQUEUE if method.requeue else Settlement.REJECT
    channel.settle(how, method.delivery_tag, now, multiple=method.multiple)


@_command(m.BasicReject)
def basic_reject(session: "Session", channel: Channel, method: m.BasicReject, now: int) -> None:
    how = Settlement.REQUEUE if method.requeue else Settlement.REJECT
    channel.settle(how, method.delivery_tag, now, multiple=False)


@_command(m.BasicRecover)
def basic_recover(session: "Session", channel: Channel, method: m.BasicRecover, now: int) -> None:
    _check_requeue(method.requeue)
    channel.send(m.BasicRecoverOk())
    channel.recover(now)


@_command(m.BasicRecoverAsync)
def basic_recover_async(
    session: "Session", channel: Channel, method: m.BasicRecoverAsync, now: int
) -> None:
    _check_requeue(method.requeue)
    channel.recover(now)


def _check_requeue(requeue: bool) -> None:
    if not requeue:
        raise NotImplementedHere("requeue=false")


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────────────


@_command(m.ConfirmSelect)
def confirm_select(session: "Session", channel: Channel, method: m.ConfirmSelect, now: int) -> None:
    if channel.publisher.pending is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.publisher.begin_confirming()
    if not method.no_wait:
        channel.send(m.ConfirmSelectOk())


@_command(m.TxSelect)
def tx_select(session: "Session", channel: Channel, method: m.TxSelect, now: int) -> None:
    if channel.publisher.confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.publisher.pending is None:
        channel.publisher.pending = []
    channel.send(m.TxSelectOk())


@_command(m.TxCommit)
def tx_commit(
    session: "Session", channel: Channel, method: m.TxCommit, now: int
) -> m.Method | None:
    _check_transactional(channel)
    channel.commit(now)
    return m.TxCommitOk()


@_command(m.TxRollback)
def tx_rollback(session: "Session", channel: Channel, method: m.TxRollback, now: int) -> None:
    _check_transactional(channel)
    channel.rollback()
    channel.send(m.TxRollbackOk())


def _check_transactional(channel: Channel) -> None:
    if channel.publisher.pending is None:
        raise PreconditionFailed("channel is not transactional")


@_command(m.ChannelFlow)
def channel_flow(session: "Session", channel: Channel, method: m.ChannelFlow, now: int) -> None:
    if not method.active:
        raise NotImplementedHere("active=false")
    channel.send(m.ChannelFlowOk(True))


@_command(m.AccessRequest)
def access_request(session: "Session", channel: Channel, method: m.AccessRequest, now: int) -> None:
    """Older clients ask; permissions are checked where they are used."""
    channel.send(m.AccessRequestOk())
