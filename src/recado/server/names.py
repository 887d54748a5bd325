"""The names in a client's method: which thing is meant, and whether the client may use it so."""

from typing import TYPE_CHECKING

from recado.amqp.errors import AccessRefusedError, NotFoundError
from recado.broker.channel import Channel
from recado.broker.queue import Queue

if TYPE_CHECKING:
    from .session import Session


_LINE_BREAKS = str.maketrans("", "", "\r\n")


def strip_line_breaks(name: str) -> str:
    """The name without CR and LF, as RabbitMQ takes it when something is declared, bound or deleted."""
    return name.translate(_LINE_BREAKS)


def resolve_queue_name(channel: Channel, name: str) -> str:
    """The name of a queue; an empty one stands for the queue that the channel declared last."""
    if name:
        return name
    if channel.last_queue is None:
        raise NotFoundError("no previously declared queue")
    return channel.last_queue


def resolve_binding_names(channel: Channel, queue: str, key: str) -> tuple[str, str]:
    """Both left empty, the queue declared last is bound by its own name."""
    name = strip_line_breaks(resolve_queue_name(channel, queue))
    return name, name if not queue and not key else key


def find_readable_queue(session: "Session", channel: Channel, name: str) -> Queue:
    name = resolve_queue_name(channel, name)
    channel.access.permissions.check_read("queue", name)
    return channel.access.vhost.find_accessible_queue(session, name)


def check_binding(channel: Channel, kind: str, destination: str, source: str, key: str) -> None:
    access, vhost = channel.access.permissions, channel.access.vhost
    access.check_write(kind, destination)
    access.check_read("exchange", source)
    exchange = vhost.exchanges.get(source)
    if exchange is not None and exchange.settings.exchange_type == "topic":
        access.check_topic_read(source, key)


def check_any_access(channel: Channel, kind: str, name: str) -> None:
    """Who has no permission on a name at all is not told whether it exists."""
    access = channel.access.permissions
    for check in (access.check_configure, access.check_write):
        try:
            check(kind, name)
        except AccessRefusedError:
            continue
        return
    access.check_read(kind, name)
