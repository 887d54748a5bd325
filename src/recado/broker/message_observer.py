"""The broker's port for observers of messages, such as traces and live views of a queue.

A vhost or a single queue has observers only while an operator asked for them. Otherwise each place that notifies
them costs the test of an empty tuple: a few nanoseconds for a run.

A notification is made within the operation that it is about, so an observer only records it: it must not call the
broker, keep a run, raise, or take long. Messages are identified by their queue and position. Those that enter a
queue have the payload objects of the run that was published or forwarded before.

MOB1  A message is `published` or `forwarded` before it has `entered` a queue, and has entered it before it is
     delivered, settled, forwarded or dropped there.
"""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from .steps import STEP_UNITS_MAX, Steps

if TYPE_CHECKING:
    from .channel import Settlement
    from .consumer import Consumer, PeerConnection
    from .queue import Queue
    from .routing import VhostAccess
    from .run import Run
    from .vhost import Vhost

_QUEUES_PER_STEP: Final = STEP_UNITS_MAX * 16


class MessageObserver:
    """An observer that ignores everything; observers override what they need."""

    def published(
        self,
        access: "VhostAccess",
        connection: "PeerConnection",
        channel: int,
        run: "Run",
        queues: "Sequence[Queue]",
    ) -> None:
        """A client publishes messages, which are routed to these queues."""

    def unroutable(self, run: "Run", *, returned: bool) -> None:
        """Published messages reach no queue; they are returned to the publisher, or dropped."""

    def entered(self, queue: "Queue", run: "Run") -> None:
        """Messages have entered a queue and have their positions."""

    def refused(self, queue: "Queue", run: "Run") -> None:
        """A queue rejects messages, because it is full."""

    def delivered(
        self,
        queue: "Queue",
        run: "Run",
        connection: "PeerConnection",
        consumer: "Consumer | None",
        *,
        is_settled: bool,
    ) -> None:
        """Messages are delivered to a consumer, or to basic.get; without acknowledgement they have then left."""

    def settled(
        self, queue: "Queue", run: "Run", low: int, high: int, settlement: "Settlement"
    ) -> None:
        """Messages low..high-1 of a delivered run are acknowledged, requeued or rejected."""

    def forwarded(self, queue: "Queue", run: "Run", reason: str, exchange: str | None) -> None:
        """Messages leave a queue for others, for a reason of `x-death`, or `DELAYED` or `MOVED`.

        The run has the contents that enter the next queues, and the positions that the messages have in this one.
        `exchange` routes them; None if they go to a certain queue.
        """

    def dropped(self, queue: "Queue", run: "Run", reason: str) -> None:
        """Messages leave a queue for a reason of `x-death`, and go nowhere."""

    def purged(self, queue: "Queue") -> None:
        """All ready messages leave a queue, because it is purged or deleted."""


DELAYED: Final = "delayed"
MOVED: Final = "moved"
"""Reasons to forward messages, besides those of `x-death`."""

Observers = tuple[MessageObserver, ...]


def add_message_observer(vhost: "Vhost[Any]", observer: MessageObserver) -> Steps[None]:
    """Notify an observer of the messages of all queues of a vhost, those that exist and later ones."""
    vhost.message_observers += (observer,)
    return _update_queues(vhost, observer)


def remove_message_observer(vhost: "Vhost[Any]", observer: MessageObserver) -> Steps[None]:
    """Notify the observer no longer."""
    vhost.message_observers = tuple(
        each for each in vhost.message_observers if each is not observer
    )
    return _update_queues(vhost, observer)


def _update_queues(vhost: "Vhost[Any]", observer: MessageObserver) -> Steps[None]:
    delayed = (each.delayed_queue for each in list(vhost.exchanges.values()))
    queues = iter([*vhost.queues.values(), *(each for each in delayed if each is not None)])
    while chunk := list(islice(queues, _QUEUES_PER_STEP)):
        is_wanted = observer in vhost.message_observers
        for queue in chunk:
            others = tuple(each for each in queue.observers if each is not observer)
            queue.observers = (*others, observer) if is_wanted else others
        yield STEP_UNITS_MAX
