"""Opens the transport that a URL names; its dependencies are imported only then."""

from __future__ import annotations

from typing import Final

from recado.feeds.errors import InvalidUrlError

from .endpoint import FeedTransport

EXAMPLE_BROKER_URL: Final = "amqp://guest:guest@localhost:5672"
EXAMPLE_GROUP_URL: Final = "udp://239.255.42.1:4242"


async def open_transport(
    url: str, reconnect_timeout: float | None, *, wait_for_broker: bool = False
) -> FeedTransport:
    scheme, colon, _ = url.partition("://")
    match scheme:
        case "amqp" | "amqps" if colon:
            from recado.client.parameters import parse_url

            from .amqp import AmqpFeedTransport

            # Only the parser: a ValueError of other code is an internal error, not an invalid URL.
            try:
                parse_url(url)
            except ValueError as error:
                raise InvalidUrlError(str(error), f"Example: {EXAMPLE_BROKER_URL}") from error
            return await AmqpFeedTransport.open(
                url, reconnect_timeout, wait_for_broker=wait_for_broker
            )
        case "udp" if colon:
            from .udp import UdpFeedTransport, parse_group

            try:
                group = parse_group(url)
            except ValueError as error:
                raise InvalidUrlError(str(error), f"Example: {EXAMPLE_GROUP_URL}") from error
            return UdpFeedTransport(group)
        case _:
            raise InvalidUrlError(
                f"the URL of a feed must begin with amqp://, amqps:// or udp://, not {url[:8]!r}",
                f"Example: {EXAMPLE_BROKER_URL} or {EXAMPLE_GROUP_URL}",
            )
