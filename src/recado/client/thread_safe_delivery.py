"""Deliveries of the blocking client: any thread may settle them, and the loop's thread does it."""

from collections.abc import Callable
from functools import partial

from .channel import Channel as BareChannel
from .loop_thread import LoopThread
from .messages import Delivery, DeliverySource


class _ThreadSafeChannel:
    """The channel of a delivery, for other threads than the loop's."""

    def __init__(self, thread: LoopThread, source: DeliverySource, channel: BareChannel) -> None:
        self._thread = thread
        self._source = source
        self._channel = channel

    @property
    def is_open(self) -> bool:
        return self._channel.is_open

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return self._settle_in_loop(
            partial(self._channel.ack, self._restore_delivery(delivery), multiple=multiple)
        )

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        own = self._restore_delivery(delivery)
        return self._settle_in_loop(
            partial(self._channel.nack, own, multiple=multiple, requeue=requeue)
        )

    def _restore_delivery(self, delivery: Delivery) -> Delivery:
        if self._source.no_ack:
            raise ValueError("a delivery to a consumer with no_ack is settled already")
        return Delivery(self._source, delivery.delivery_tag, delivery.raw_properties, delivery.body)

    def _settle_in_loop(self, settle: Callable[[], bool]) -> bool:
        if not (self._channel.is_open and self._thread.is_running):
            return False
        self._thread.call_soon(settle)
        return True


def make_thread_safe(thread: LoopThread, deliveries: list[Delivery]) -> list[Delivery]:
    """The same deliveries, which any thread may settle."""
    found: list[Delivery] = []
    source: DeliverySource | None = None
    for each in deliveries:
        if each.source is not source:
            source = each.source
            assert isinstance(source.channel, BareChannel)
            own = DeliverySource(
                _ThreadSafeChannel(thread, source, source.channel),
                source.consumer_tag,
                source.redelivered,
                source.exchange,
                source.routing_key,
                source.no_ack,
            )
        found.append(Delivery(own, each.delivery_tag, each.raw_properties, each.body))
    return found
