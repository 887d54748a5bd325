"""Which carrier a URL asks for; what it needs is imported only then."""

from __future__ import annotations

from typing import Final

from recado.feeds.errors import WrongUrl

from .port import Carrier

BROKER: Final = "amqp://guest:guest@localhost:5672"
GROUP: Final = "udp://239.255.42.1:4242"


async def carrier_for(url: str, give_up: float | None, *, patient: bool = False) -> Carrier:
    scheme, colon, _ = url.partition("://")
    match scheme:
        case "amqp" | "amqps" if colon:
            from recado.client.address import parse_address

            from .amqp import AmqpCarrier

            # Only what reads the URL: a ValueError of anything else is a fault, and none of the URL.
            try:
                parse_address(url)
            except ValueError as error:
                raise WrongUrl(str(error), f"Write it as in {BROKER}.") from error
            return await AmqpCarrier.open(url, give_up, patient=patient)
        case "udp" if colon:
            from .udp import UdpCarrier, parse_group

            try:
                group = parse_group(url)
            except ValueError as error:
                raise WrongUrl(str(error), f"Write it as in {GROUP}.") from error
            return UdpCarrier(group)
        case _:
            raise WrongUrl(
                f"a feed's URL begins with amqp://, amqps:// or udp://, not with {url[:8]!r}",
                f"Write it as in {BROKER} or {GROUP}.",
            )
