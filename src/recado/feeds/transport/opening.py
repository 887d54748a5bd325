"""Which carrier a URL asks for; what it needs is imported only then."""

from __future__ import annotations

from recado.feeds.errors import CannotJoin

from .port import Carrier


async def carrier_for(url: str, give_up: float | None, *, patient: bool = False) -> Carrier:
    scheme, colon, _ = url.partition("://")
    try:
        match scheme:
            case "amqp" | "amqps" if colon:
                from .amqp import AmqpCarrier

                return await AmqpCarrier.open(url, give_up, patient=patient)
            case "udp" if colon:
                from .udp import UdpCarrier, parse_group

                return UdpCarrier(parse_group(url))
    except ValueError as error:
        raise CannotJoin(str(error)) from error
    raise CannotJoin(f"a feed's URL begins with amqp://, amqps:// or udp://, not with {url[:8]!r}")
