"""A node without actors: a transport, and a listener that settles and records everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.actors.remote.transport import PeerLink, Settle
from recado.client import ConnectionParameters
from tests.actors.remote.recorder import Recorder

LIMIT = 1 << 20
QUICK: dict[str, Any] = {"connect_timeout": 2.0, "read_timeout": 2.0, "retry_max": 0.2}


class End(Recorder):
    def __init__(self, transport: AmqpTransport) -> None:
        super().__init__()
        self.transport = transport
        self.settles_at_once = True

    def frame_received(self, link: PeerLink, frame: bytes, settle: Settle | None) -> None:
        assert settle is not None
        if self.settles_at_once:
            settle(True)
        super().frame_received(link, frame, settle)

    @property
    def unique(self) -> list[bytes]:
        """The received frames, without duplicates."""
        return list(dict.fromkeys(self.frames))

    @property
    def is_well(self) -> bool:
        return not self.events or self.events[-1] == "healed"


@asynccontextmanager
async def end(
    url: str | ConnectionParameters, name: str, client: str = "", **given: Any
) -> AsyncIterator[End]:
    transport = AmqpTransport(url, AmqpSettings(**(QUICK | given)))
    it = End(transport)
    await transport.open(name, client or name, LIMIT, it)
    try:
        yield it
    finally:
        await transport.close()


def frame(number: int, size: int = 40) -> bytes:
    return number.to_bytes(4) + bytes(size)


def frames(first: int, last: int) -> list[bytes]:
    return [frame(number) for number in range(first, last)]
