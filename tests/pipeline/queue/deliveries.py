"""Deliveries as a client receives them, for tests without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from recado.amqp.properties import Properties, encode_properties
from recado.client.messages import Delivery, DeliverySource


class Settled:
    """A channel that remembers what was acknowledged."""

    is_open = True

    def __init__(self) -> None:
        self.acked: list[int] = []

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        self.acked.append(delivery.delivery_tag)
        return True

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        return True


def delivery(
    body: bytes, message_id: str | None = None, *, tag: int = 1, header: bytes | None = None
) -> Delivery:
    source = DeliverySource(Settled(), "consumer", False, "exchange", "key", False)
    if header is None:
        header = encode_properties(Properties(message_id=message_id))
    return Delivery(source, tag, header, body)


def deliveries(numbers: Sequence[int], *, ids: bool = True, size: int = 0) -> list[Delivery]:
    """Each has its number as its body, and as its id."""
    return [
        delivery(b"%d" % number + b"." * size, f"id-{number}" if ids else None, tag=number)
        for number in numbers
    ]
