"""A transport listener that records its calls, and lets a test wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import repeat

from recado.actors.remote.events import LinkEvent
from recado.actors.remote.transport import PeerLink, Settle


class Recorder:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.links: list[PeerLink] = []  # on which the frames arrived
        self.settles: list[Settle | None] = []
        self.unproved: list[bytes] = []
        self.returned_frames: list[bytes] = []
        self.events: list[str] = []
        self.told: list[LinkEvent] = []
        self.answer: Callable[[bytes], bytes | None] = lambda frame: None
        self._changed = asyncio.Event()

    def frame_received(self, link: PeerLink, frame: bytes, settle: Settle | None) -> None:
        self.frames.append(frame)
        self.links.append(link)
        self.settles.append(settle)
        if (answer := self.answer(frame)) is not None:
            link.post(answer)
        self._changed.set()

    def frames_received(
        self, link: PeerLink, frames: list[bytes], settles: Sequence[Settle] | None = None
    ) -> None:
        for frame, settle in zip(frames, settles or repeat(None), strict=False):
            self.frame_received(link, frame, settle)

    def make_proof(self, text: bytes) -> bytes:
        return b"a proof, perhaps"

    def accepted_proofs(self, text: bytes) -> list[bytes]:
        return [b"a proof, perhaps"]

    def unauthenticated_frames_received(self, link: PeerLink, frames: list[bytes]) -> None:
        self.unproved += frames
        self._changed.set()

    def frame_returned(self, link: PeerLink, frame: bytes, reason: str) -> None:
        self.returned_frames.append(frame)
        self._changed.set()

    def link_lost(self, link: PeerLink, reason: str) -> None:
        self._note("lost")

    def link_restored(self, link: PeerLink) -> None:
        self._note("healed")

    def link_closed(self, link: PeerLink, reason: str) -> None:
        self._note("gone")

    def publish_event(self, event: LinkEvent) -> None:
        self.told.append(event)
        self._changed.set()

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
