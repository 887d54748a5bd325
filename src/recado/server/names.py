"""The names in the methods of clients: which queue or exchange is meant, and whether the client may use it."""

from typing import TYPE_CHECKING

from recado.amqp.errors import AccessRefusedError, NotFoundError
from recado.broker.channel import Channel
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess

if TYPE_CHECKING:
    from .session import Session


_LINE_BREAKS = str.maketrans("", "", "\r\n")


def strip_line_breaks(name: str) -> str:
    """Return a name without CR and LF, as RabbitMQ does for declare, bind and delete."""
    return name.translate(_LINE_BREAKS)


def resolve_queue_name(channel: Channel, name: str) -> str:
    """Return the name of a queue; an empty one means the queue that the channel declared last."""
    if name:
        return name
    if channel.last_queue is None:
        raise NotFoundError("no previously declared queue")
    return channel.last_queue


def resolve_binding_names(channel: Channel, queue: str, key: str) -> tuple[str, str]:
    """Return queue name and routing key of a binding.

    If both are empty, the queue that was declared last is bound with its name as the key.
    """
    name = strip_line_breaks(resolve_queue_name(channel, queue))
    return name, name if not queue and not key else key


def find_readable_queue(session: "Session", channel: Channel, name: str) -> Queue:
    name = resolve_queue_name(channel, name)
    channel.access.permissions.check_read("queue", name)
    return channel.access.vhost.find_accessible_queue(session, name)


def check_binding(access: VhostAccess, kind: str, destination: str, source: str, key: str) -> None:
    """Check the permissions to bind or unbind: write on the destination, read on the source."""
    permissions, vhost = access.permissions, access.vhost
    permissions.check_write(kind, destination)
    permissions.check_read("exchange", source)
    exchange = vhost.exchanges.get(source)
    if exchange is not None and exchange.settings.exchange_type == "topic":
        permissions.check_topic_read(source, key)


def check_any_access(access: VhostAccess, kind: str, name: str) -> None:
    """Refuse access to a client without any permission on a name, so that it cannot find out what exists."""
    permissions = access.permissions
    for check in (permissions.check_configure, permissions.check_write):
        try:
            check(kind, name)
        except AccessRefusedError:
            continue
        return
    permissions.check_read(kind, name)
