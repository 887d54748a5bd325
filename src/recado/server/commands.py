"""The methods that clients send on channels, one function for each: check, act, reply.

The order of checks is RabbitMQ's, because clients can observe it: permission, then existence, then equivalence.
The functions are found through `COMMANDS`; the session handles connection and channel methods itself.

Some methods need work done before they can be carried out atomically. If that may be much, it is done in
bounded steps (`PREPARATIONS`), and the method waits for it together with all later input of its connection.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from recado.amqp import methods as m
from recado.amqp.errors import AmqpNotImplementedError, PreconditionFailedError
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.broker.arguments import ConsumerSettings, parse_consumer_arguments
from recado.broker.channel import Channel, Settlement
from recado.broker.declarations import declare_exchange, declare_queue
from recado.broker.queue import Queue
from recado.broker.steps import TURN_UNITS_MAX, Steps

from .names import (
    check_any_access,
    check_binding,
    find_readable_queue,
    resolve_binding_names,
    resolve_queue_name,
    strip_line_breaks,
)

if TYPE_CHECKING:
    from .session import Session

M = TypeVar("M", bound=m.Method)
Command = Callable[["Session", Channel, M, int], m.Method | None]

COMMANDS: dict[type[m.Method], Command[Any]] = {}
"""Each sends its reply, or returns a reply to be sent when the background work that it started is done."""


def _handles(method: type[M]) -> Callable[[Command[M]], Command[M]]:
    def register(command: Command[M]) -> Command[M]:
        COMMANDS[method] = command
        return command

    return register


# ── exchanges ─────────────────────────────────────────────────────────────────────────────────────────────


@_handles(m.ExchangeDeclare)
def exchange_declare(
    session: "Session", channel: Channel, method: m.ExchangeDeclare, now: int
) -> None:
    access, name = channel.access, strip_line_breaks(method.exchange)
    if method.passive:
        check_any_access(access, "exchange", name)
        access.vhost.require_exchange(name)
    else:
        declare_exchange(
            access,
            name,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    if not method.no_wait:
        channel.send(m.ExchangeDeclareOk())


@_handles(m.ExchangeDelete)
def exchange_delete(
    session: "Session", channel: Channel, method: m.ExchangeDelete, now: int
) -> None:
    name = strip_line_breaks(method.exchange)
    channel.access.permissions.check_configure("exchange", name)
    channel.access.vhost.delete_exchange(name, if_unused=method.if_unused)
    if not method.no_wait:
        channel.send(m.ExchangeDeleteOk())


@_handles(m.ExchangeBind)
def exchange_bind(session: "Session", channel: Channel, method: m.ExchangeBind, now: int) -> None:
    destination, source = map(strip_line_breaks, (method.destination, method.source))
    check_binding(channel.access, "exchange", destination, source, method.routing_key)
    channel.access.vhost.bind_exchange(destination, source, method.routing_key, method.arguments)
    if not method.no_wait:
        channel.send(m.ExchangeBindOk())


@_handles(m.ExchangeUnbind)
def exchange_unbind(
    session: "Session", channel: Channel, method: m.ExchangeUnbind, now: int
) -> None:
    destination, source = map(strip_line_breaks, (method.destination, method.source))
    check_binding(channel.access, "exchange", destination, source, method.routing_key)
    channel.access.vhost.unbind_exchange(destination, source, method.routing_key, method.arguments)
    if not method.no_wait:
        channel.send(m.ExchangeUnbindOk())


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────


@_handles(m.QueueDeclare)
def queue_declare(session: "Session", channel: Channel, method: m.QueueDeclare, now: int) -> None:
    if method.queue == DIRECT_REPLY_TO:
        ready, consumers, name = 0, 1, DIRECT_REPLY_TO
    else:
        if method.passive:
            queue = _find_existing_queue(session, channel, strip_line_breaks(method.queue))
        else:
            queue = declare_queue(
                session.broker,
                channel.access,
                strip_line_breaks(method.queue),
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
                arguments=method.arguments,
                connection=session,
                now=now,
            )
        queue.touch(now)
        channel.last_queue = name = queue.name
        ready, consumers = queue.ready, len(queue.consumers)
    if not method.no_wait:
        channel.send(m.QueueDeclareOk(name, ready, consumers))


def _find_existing_queue(session: "Session", channel: Channel, name: str) -> Queue:
    check_any_access(channel.access, "queue", name)
    # Any client may ask whether a direct reply-to address still exists.
    if name.startswith(DIRECT_REPLY_TO):
        return channel.access.vhost.find_queue(name)
    return channel.access.vhost.find_accessible_queue(session, name)


@_handles(m.QueueBind)
def queue_bind(session: "Session", channel: Channel, method: m.QueueBind, now: int) -> None:
    name, key = resolve_binding_names(channel, method.queue, method.routing_key)
    exchange = strip_line_breaks(method.exchange)
    check_binding(channel.access, "queue", name, exchange, key)
    channel.access.vhost.bind_queue(name, exchange, key, method.arguments, connection=session)
    if not method.no_wait:
        channel.send(m.QueueBindOk())


@_handles(m.QueueUnbind)
def queue_unbind(session: "Session", channel: Channel, method: m.QueueUnbind, now: int) -> None:
    name, key = resolve_binding_names(channel, method.queue, method.routing_key)
    exchange = strip_line_breaks(method.exchange)
    check_binding(channel.access, "queue", name, exchange, key)
    channel.access.vhost.unbind_queue(name, exchange, key, method.arguments, connection=session)
    channel.send(m.QueueUnbindOk())


@_handles(m.QueuePurge)
def queue_purge(
    session: "Session", channel: Channel, method: m.QueuePurge, now: int
) -> m.Method | None:
    count = find_readable_queue(session, channel, method.queue).purge()
    return None if method.no_wait else m.QueuePurgeOk(count)


@_handles(m.QueueDelete)
def queue_delete(session: "Session", channel: Channel, method: m.QueueDelete, now: int) -> None:
    name = strip_line_breaks(resolve_queue_name(channel, method.queue))
    channel.access.permissions.check_configure("queue", name)
    vhost = channel.access.vhost

    def answer(count: int) -> None:
        if not method.no_wait:
            channel.send(m.QueueDeleteOk(count))

    if name not in vhost.queues:
        answer(0)
        return
    queue = vhost.find_accessible_queue(session, name)
    session.broker.delete_queue(
        queue, now, if_unused=method.if_unused, if_empty=method.if_empty, on_deleted=answer
    )


# ── consuming ─────────────────────────────────────────────────────────────────────────────────────────────


@_handles(m.BasicQos)
def basic_qos(session: "Session", channel: Channel, method: m.BasicQos, now: int) -> None:
    if method.prefetch_size:
        raise AmqpNotImplementedError(f"prefetch_size!=0 ({method.prefetch_size})")
    channel.send(m.BasicQosOk())
    if method.global_:
        channel.global_prefetch = method.prefetch_count
        channel.resume(now)
    else:
        channel.consumer_prefetch = method.prefetch_count  # applies to later consumers


@_handles(m.BasicConsume)
def basic_consume(session: "Session", channel: Channel, method: m.BasicConsume, now: int) -> None:
    tag = method.consumer_tag or f"amq.ctag-{session.broker.new_name()}"
    vhost = channel.access.vhost.name
    if method.queue == DIRECT_REPLY_TO:
        channel.check_tag_unused(tag)
        settings = parse_consumer_arguments(DIRECT_REPLY_TO, vhost, "classic", method.arguments)
        queue = _create_reply_queue(session, channel, method, settings, now)
    else:
        queue = find_readable_queue(session, channel, method.queue)
        kind = queue.settings.queue_type
        settings = parse_consumer_arguments(queue.name, vhost, kind, method.arguments)
    channel.consume(queue, tag, settings, no_ack=method.no_ack, exclusive=method.exclusive, now=now)
    if not method.no_wait:
        channel.send(m.BasicConsumeOk(tag))
    queue.dispatch(now)


def _create_reply_queue(
    session: "Session",
    channel: Channel,
    method: m.BasicConsume,
    settings: ConsumerSettings,
    now: int,
) -> Queue:
    """Create the queue of a direct reply-to consumer.

    This is done after all checks, because the queue of a consumer that was refused would never be deleted.
    """
    if not method.no_ack:
        raise PreconditionFailedError("reply consumer cannot acknowledge")
    if settings.wire_tap:
        raise PreconditionFailedError("direct replies cannot be tapped")
    if channel.publisher.reply_queue in channel.access.vhost.queues:
        raise PreconditionFailedError("reply consumer already set")
    queue = session.broker.create_reply_queue(channel.access.vhost, now)
    channel.publisher.reply_queue = queue.name
    return queue


@_handles(m.BasicCancel)
def basic_cancel(session: "Session", channel: Channel, method: m.BasicCancel, now: int) -> None:
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is not None:
        session.broker.cancel(consumer, now)
    if not method.no_wait:
        channel.send(m.BasicCancelOk(method.consumer_tag))


@_handles(m.BasicGet)
def basic_get(session: "Session", channel: Channel, method: m.BasicGet, now: int) -> None:
    queue = find_readable_queue(session, channel, method.queue)
    if not channel.get(queue, no_ack=method.no_ack, now=now):
        channel.send(m.BasicGetEmpty())


@_handles(m.BasicAck)
def basic_ack(session: "Session", channel: Channel, method: m.BasicAck, now: int) -> None:
    channel.settle(Settlement.ACK, method.delivery_tag, now, multiple=method.multiple)


@_handles(m.BasicNack)
def basic_nack(session: "Session", channel: Channel, method: m.BasicNack, now: int) -> None:
    settlement = Settlement.REQUEUE if method.requeue else Settlement.REJECT
    channel.settle(settlement, method.delivery_tag, now, multiple=method.multiple)


@_handles(m.BasicReject)
def basic_reject(session: "Session", channel: Channel, method: m.BasicReject, now: int) -> None:
    settlement = Settlement.REQUEUE if method.requeue else Settlement.REJECT
    channel.settle(settlement, method.delivery_tag, now, multiple=False)


@_handles(m.BasicRecover)
def basic_recover(session: "Session", channel: Channel, method: m.BasicRecover, now: int) -> None:
    _check_requeue(method.requeue)
    channel.send(m.BasicRecoverOk())
    channel.recover(now)


@_handles(m.BasicRecoverAsync)
def basic_recover_async(
    session: "Session", channel: Channel, method: m.BasicRecoverAsync, now: int
) -> None:
    _check_requeue(method.requeue)
    channel.recover(now)


def _check_requeue(requeue: bool) -> None:
    if not requeue:
        raise AmqpNotImplementedError("requeue=false")


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────────────


@_handles(m.ConfirmSelect)
def confirm_select(session: "Session", channel: Channel, method: m.ConfirmSelect, now: int) -> None:
    if channel.publisher.transaction is not None:
        raise PreconditionFailedError("cannot switch from tx to confirm mode")
    channel.publisher.enable_confirms()
    if not method.no_wait:
        channel.send(m.ConfirmSelectOk())


@_handles(m.TxSelect)
def tx_select(session: "Session", channel: Channel, method: m.TxSelect, now: int) -> None:
    if channel.publisher.confirms_enabled:
        raise PreconditionFailedError("cannot switch from confirm to tx mode")
    if channel.publisher.transaction is None:
        channel.publisher.transaction = []
    channel.send(m.TxSelectOk())


@_handles(m.TxCommit)
def tx_commit(
    session: "Session", channel: Channel, method: m.TxCommit, now: int
) -> m.Method | None:
    _check_transactional(channel)
    channel.commit(now)
    return m.TxCommitOk()


@_handles(m.TxRollback)
def tx_rollback(session: "Session", channel: Channel, method: m.TxRollback, now: int) -> None:
    _check_transactional(channel)
    channel.rollback()
    channel.send(m.TxRollbackOk())


def _check_transactional(channel: Channel) -> None:
    if channel.publisher.transaction is None:
        raise PreconditionFailedError("channel is not transactional")


@_handles(m.ChannelFlow)
def channel_flow(session: "Session", channel: Channel, method: m.ChannelFlow, now: int) -> None:
    if not method.active:
        raise AmqpNotImplementedError("active=false")
    channel.send(m.ChannelFlowOk(True))


@_handles(m.AccessRequest)
def access_request(session: "Session", channel: Channel, method: m.AccessRequest, now: int) -> None:
    """Accept access.request of older clients without a check: each later method checks its own permissions."""
    channel.send(m.AccessRequestOk())


# ── preparations ──────────────────────────────────────────────────────────────────────────────────────────

Preparation = Callable[["Session", Channel, M], Steps[None] | None]

PREPARATIONS: dict[type[m.Method], Preparation[Any]] = {}
"""Each returns the work to be done before the method, or None if there is none."""


def _prepares(method: type[M]) -> Callable[[Preparation[M]], Preparation[M]]:
    def register(preparation: Preparation[M]) -> Preparation[M]:
        PREPARATIONS[method] = preparation
        return preparation

    return register


@_prepares(m.ExchangeDeclare)
def prepare_exchange_declare(
    session: "Session", channel: Channel, method: m.ExchangeDeclare
) -> Steps[None] | None:
    """Wait until a previous exchange of that name is deleted, and for an import that may declare it."""
    vhost, name = channel.access.vhost, strip_line_breaks(method.exchange)
    if not vhost.must_wait_to_declare("exchange", name):
        return None
    return vhost.wait_until_declarable("exchange", name)


@_prepares(m.ExchangeDelete)
def prepare_exchange_delete(
    session: "Session", channel: Channel, method: m.ExchangeDelete
) -> Steps[None] | None:
    """Wait for an import that may declare or bind the exchange."""
    return _wait_until_released(channel, "exchange", strip_line_breaks(method.exchange))


@_prepares(m.QueueDelete)
def prepare_queue_delete(
    session: "Session", channel: Channel, method: m.QueueDelete
) -> Steps[None] | None:
    """Wait for an import that may declare or bind the queue."""
    name = strip_line_breaks(resolve_queue_name(channel, method.queue))
    return _wait_until_released(channel, "queue", name)


def _wait_until_released(channel: Channel, entity: str, name: str) -> Steps[None] | None:
    vhost = channel.access.vhost
    return vhost.wait_until_released(entity, name) if (entity, name) in vhost.reserved else None


@_prepares(m.QueueDeclare)
def prepare_queue_declare(
    session: "Session", channel: Channel, method: m.QueueDeclare
) -> Steps[None] | None:
    """Wait until a previous queue of that name is deleted, such as an exclusive one of an ended connection.

    Wait also for an import that may declare it.
    """
    vhost, name = channel.access.vhost, strip_line_breaks(method.queue)
    if vhost.must_wait_to_declare("queue", name):
        return vhost.wait_until_declarable("queue", name)
    queue = vhost.queues.get(name)
    if queue is None or queue.owner is None or not queue.owner.has_ended:
        return None
    return _wait_until_deleted(queue)


def _wait_until_deleted(queue: Queue) -> Steps[None]:
    while not queue.deleted:
        yield TURN_UNITS_MAX


@_prepares(m.TxCommit)
def prepare_commit(session: "Session", channel: Channel, method: m.TxCommit) -> Steps[None] | None:
    """Find the queues of the transaction's messages in steps, so that the commit only has to publish."""
    publisher = channel.publisher
    return (
        publisher.prepare_commit() if publisher.transaction and not publisher.is_prepared else None
    )
