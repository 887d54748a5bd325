"""What a bridge has for whoever uses it: frames that came, frames that came back, and how it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

from recado.actors.remote.transport import Settle
from recado.amqp.errors import AmqpError
from recado.amqp.properties import decode_properties


class DeliveredFrames:
    """Frames that the broker delivered together, at least one. Each comes again, unless it is settled, once.

    Frame i came with `headers[i]`, and is settled by `settles[i]`.
    """

    __slots__ = ("frames", "headers", "settles")

    def __init__(
        self, headers: list[bytes], frames: list[bytes], settles: Sequence[Settle]
    ) -> None:
        self.headers = headers
        self.frames = frames
        self.settles = settles

    def group_by_header(self) -> Iterator[DeliveredFrames]:
        """Those that follow each other and have the same one."""
        headers = self.headers
        if headers.count(headers[0]) == len(headers):  # as nearly always
            yield self
            return
        first = 0
        for _, alike in groupby(headers):
            last = first + sum(1 for _ in alike)
            part = slice(first, last)
            yield DeliveredFrames(headers[part], self.frames[part], self.settles[part])
            first = last


def client_id_of(header: bytes) -> str:
    """The id of the client bridge that sent it, as it says; empty if it says none."""
    try:
        return decode_properties(header, max_entries=64).reply_to or ""
    except AmqpError:
        return ""


class BridgeFrameHandler(Protocol):
    def frames_delivered(self, messages: DeliveredFrames) -> bool:
        """True: acknowledge them. False: not now; who has them settles each, or it comes again."""

    def frame_rejected(self, key: str, body: bytes, reason: str) -> None:
        """The broker gave this back: nobody has a queue for it, or it was refused."""


class BridgeListener(Protocol):
    """Who is told how a bridge stands; the application, in the end."""

    def bridge_lost(self, reason: str) -> None:
        """It has no way to the broker, or the broker none to the node. It is being rebuilt."""

    def bridge_restored(self) -> None: ...

    def bridge_closed(self, reason: str) -> None:
        """It was not rebuilt in time, and nobody tries any more."""


class ReportingBridgeListener(BridgeListener, Protocol):
    """A Watcher that is also told how long a bridge has been lost."""

    def bridge_still_down(self, seconds: float, reason: str) -> None:
        """It has been lost for so long, and is still being rebuilt; every `report_interval`."""
