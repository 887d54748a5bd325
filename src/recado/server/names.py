"""The names in a client's method: which thing is meant, and whether the client may use it so."""

from typing import TYPE_CHECKING

from recado.amqp.errors import AccessRefused, NotFound
from recado.broker.channel import Channel
from recado.broker.queue import Queue

if TYPE_CHECKING:
    from .session import Session


_LINE_BREAKS = str.maketrans("", "", "\r\n")


def strip_line_breaks(name: str) -> str:
    """The name without CR and LF, as RabbitMQ takes it when something is declared, bound or deleted."""
    return name.translate(_LINE_BREAKS)


def queue_name(channel: Channel, name: str) -> str:
    """The name of a queue; an empty one stands for the queue that the channel declared last."""
    if name:
        return name
    if channel.last_queue is None:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def binding_names(channel: Channel, queue: str, key: str) -> tuple[str, str]:
    """Both left empty, the queue declared last is bound by its own name."""
    name = strip_line_breaks(queue_name(channel, queue))
    return name, name if not queue and not key else key


def readable_queue(session: "Session", channel: Channel, name: str) -> Queue:
    name = queue_name(channel, name)
    channel.admission.access.check_read("queue", name)
    return channel.admission.vhost.find_queue_for(session, name)


def check_binding(channel: Channel, kind: str, destination: str, source: str, key: str) -> None:
    access, vhost = channel.admission.access, channel.admission.vhost
    access.check_write(kind, destination)
    access.check_read("exchange", source)
    exchange = vhost.exchanges.get(source)
    if exchange is not None and exchange.settings.kind == "topic":
        access.check_topic_read(source, key)


def check_some_access(channel: Channel, kind: str, name: str) -> None:
    """Who has no permission on a name at all is not told whether it exists."""
    access = channel.admission.access
    for check in (access.check_configure, access.check_write):
        try:
            check(kind, name)
        except AccessRefused:
            continue
        return
    access.check_read(kind, name)
