"""What must be done before some methods can be carried out, which is atomic then.

It may be much, so it is done in steps, and the method waits for it together with all that its connection sent
behind it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from recado.amqp import methods as m
from recado.broker.channel import Channel
from recado.broker.queue import Queue
from recado.broker.steps import TURN_UNITS_MAX, Steps

from .names import strip_line_breaks

if TYPE_CHECKING:
    from .session import Session

M = TypeVar("M", bound=m.Method)
Preparation = Callable[["Session", Channel, M], Steps[None] | None]

PREPARATIONS: dict[type[m.Method], Preparation[Any]] = {}
"""Each returns the work that is to be done, or None if there is none."""


def _prepares(method: type[M]) -> Callable[[Preparation[M]], Preparation[M]]:
    def register(preparation: Preparation[M]) -> Preparation[M]:
        PREPARATIONS[method] = preparation
        return preparation

    return register


@_prepares(m.ExchangeDeclare)
def prepare_exchange_declare(
    session: "Session", channel: Channel, method: m.ExchangeDeclare
) -> Steps[None] | None:
    """An exchange of that name may still be on its way out."""
    vhost, name = channel.access.vhost, strip_line_breaks(method.exchange)
    if not vhost.is_deleting("exchange", name):
        return None
    return vhost.wait_until_deleted("exchange", name)


@_prepares(m.QueueDeclare)
def prepare_queue_declare(
    session: "Session", channel: Channel, method: m.QueueDeclare
) -> Steps[None] | None:
    """A queue of that name may still be on its way out, or be about to: one of a connection that has ended."""
    vhost, name = channel.access.vhost, strip_line_breaks(method.queue)
    if vhost.is_deleting("queue", name):
        return vhost.wait_until_deleted("queue", name)
    queue = vhost.queues.get(name)
    if queue is None or queue.owner is None or not queue.owner.has_ended:
        return None
    return _wait_until_deleted(queue)


def _wait_until_deleted(queue: Queue) -> Steps[None]:
    while not queue.deleted:
        yield TURN_UNITS_MAX


@_prepares(m.TxCommit)
def prepare_commit(session: "Session", channel: Channel, method: m.TxCommit) -> Steps[None] | None:
    publisher = channel.publisher
    return (
        publisher.prepare_commit() if publisher.transaction and not publisher.is_prepared else None
    )
