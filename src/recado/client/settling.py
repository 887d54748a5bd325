"""Deliveries of the blocking client: any thread may settle them, and the loop's thread does it."""

from collections.abc import Callable
from functools import partial

from .channel import Channel as BareChannel
from .loop_thread import LoopThread
from .messages import Delivery, Source


class _Settling:
    """The channel of a delivery, for other threads than the loop's."""

    def __init__(self, thread: LoopThread, source: Source, channel: BareChannel) -> None:
        self._thread = thread
        self._source = source
        self._channel = channel

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return self._settle(partial(self._channel.ack, self._own(delivery), multiple=multiple))

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        own = self._own(delivery)
        return self._settle(partial(self._channel.nack, own, multiple=multiple, requeue=requeue))

    def _own(self, delivery: Delivery) -> Delivery:
        if self._source.settled:
            raise ValueError("a delivery to a consumer with no_ack is settled already")
        return Delivery(self._source, delivery.tag, delivery.header, delivery.body)

    def _settle(self, settle: Callable[[], bool]) -> bool:
        if not (self._channel.is_open and self._thread.is_running):
            return False
        self._thread.soon(settle)
        return True


def for_threads(thread: LoopThread, deliveries: list[Delivery]) -> list[Delivery]:
    """The same deliveries, which any thread may settle."""
    found: list[Delivery] = []
    source: Source | None = None
    for each in deliveries:
        if each.source is not source:
            source = each.source
            assert isinstance(source.channel, BareChannel)
            own = Source(
                _Settling(thread, source, source.channel),
                source.consumer_tag,
                source.redelivered,
                source.exchange,
                source.routing_key,
                source.settled,
            )
        found.append(Delivery(own, each.tag, each.header, each.body))
    return found
