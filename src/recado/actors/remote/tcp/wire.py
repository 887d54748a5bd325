"""One TCP connection with frames on it.

    handshake, then  | size u32 | frame |
                     | 0 u32 |             is anybody there?
                     | 1 u32 |             somebody is
                     | 2 u32 | mac 16 |    of all frames so far, with their sizes

P1  No more is kept of what comes than one frame within the limit, VOUCHED bytes, and one read. A size above the
    limit, or too small for any frame, ends the connection before its frame is read.
P2  Of what is posted after a read the first frame is written at once: mostly it is the only one. Whatever
    follows in the same turn is written together. An ask takes 1.4 times as long as a raw echo by that, and by
    what is handled within a read (Node.received_together); with a turn of the loop for each of them, 1.9 times.
P3  What the socket does not take waits here, and is given back by `unsent` when the connection ends.
P4  Who cannot prove that it has the cookie is kept no longer than the time for its first frame, however many it
    sends, and no more than UNPROVED_MOST bytes of them.
P5  No frame of who has proved itself is heard before the mac behind it is right. So nobody between the two ends
    adds frames, leaves some out, or sends them in another order (HS1). Each write has a mac: 1 µs.
P6  A connection on which nothing comes is ended after `silence` seconds at most, in which the other end was
    asked. One that does not read, since it has enough to do, says by itself that it is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from hmac import compare_digest
from typing import Final, Protocol, cast

from recado.actors.remote.faults import BadFrame
from recado.actors.remote.sealed.frame import REFUSAL_SIZE

from .handshake import GREETING, PROOF, Handshake, Vouching

READ: Final = 256 * 1024  # bytes at a time
UNPROVED_MOST: Final = 4096  # bytes of a frame, which is only refused
ASKS: Final = (0).to_bytes(4)
IS_THERE: Final = (1).to_bytes(4)
VOUCHES: Final = (2).to_bytes(4)
VOUCHED: Final = 64 * 1024  # bytes of frames, with their sizes, for which one mac is enough
# Within the time of silence: at the second one in silence it is asked, the third is the end.
LOOKS: Final = 3
WRITE_HIGH: Final = 256 * 1024  # bytes that the socket's transport holds before it says stop


class Owner(Protocol):
    """Whoever the connection is for."""

    def opened(self) -> None:
        """The other end has answered, as a node does."""

    def arrived(self, frames: list[bytes], *, proved: bool) -> None:
        """What one read brought; `proved` if the other end has the cookie."""

    def ready(self) -> None:
        """There is room for more."""

    def ended(self, reason: str) -> None:
        """Once, when the connection is gone."""


class Wire(asyncio.BufferedProtocol):
    def __init__(
        self,
        owner: Owner,
        handshake: Handshake,
        limit: int,
        buffer: memoryview,
        silence: float,
    ) -> None:
        self._owner = owner
        self._handshake: Handshake | None = handshake  # until it is done
        self._ours: Vouching
        self._theirs: Vouching | None = None  # if it is proved
        self._limit = limit
        self._buffer = buffer  # shared by all connections: nothing stays in it between two reads
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._may_write = False  # frames: when the other end's challenge was answered
        self._frames: list[bytes] = []  # whose mac has not come,
        self._unvouched = 0  # so many bytes
        self._part = bytearray()  # the beginning of a frame whose end has not come
        self._need = 0  # how long the part has to be before it is worth looking at
        self._queue: deque[bytes] = deque()
        self._wrote = False  # since the last read, or the last turn in which something was
        self._called = False
        self._paused = False
        self._reason = "closed by the other side"
        self.queued = 0  # bytes in the queue
        self._greeting: asyncio.TimerHandle | None = None
        self._silence = silence
        self._looking: asyncio.TimerHandle | None = None
        self._heard = True  # something, since the last look
        self._asked = False
        self._ending = False
        self.gone = self._loop.create_future()  # when the socket is

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH)
        if self._ending:  # before it had begun
            self._transport.abort()
        elif self._handshake is not None:
            self._transport.write(self._handshake.greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        self._ending = True
        self.greeted()
        if self._looking is not None:
            self._looking.cancel()
        self.gone.set_result(None)
        self._owner.ended(self._reason)

    def eof_received(self) -> bool:
        return False

    def expect(self, seconds: float) -> None:
        """Whoever does not shake hands in that time, or if it called, has nothing to say that is proved, is not
        kept (P4)."""
        self._greeting = self._loop.call_later(seconds, self.abort, "nothing came in time")

    def greeted(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
            self._greeting = None

    def close(self) -> None:
        self._ending = True
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        self._ending = True
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._wrote = False
        self._heard = True
        if self._part or self._handshake is not None:
            self._part += self._buffer[:nbytes]
            if self._handshake is not None:
                self._shake_hands(self._handshake)
            if len(self._part) < self._need or self._handshake is not None:
                return
            data = bytes(self._part)
            self._part.clear()
        else:
            data = bytes(self._buffer[:nbytes])
        self._split(data)

    def _shake_hands(self, handshake: Handshake) -> None:
        part = self._part
        if not self._may_write:
            if len(part) < GREETING:
                return
            try:
                proof = handshake.answer(bytes(part[:GREETING]))
            except BadFrame as error:
                self.abort(str(error))
                return
            del part[:GREETING]
            assert self._transport is not None
            self._transport.write(proof)
            self._ours = handshake.vouching()
            self._may_write = True
            self._flush()
        if len(part) >= PROOF and not self._ending:
            self._theirs = handshake.accepts(bytes(part[:PROOF]))
            del part[:PROOF]
            self._handshake = None
            if handshake.calls:
                self.greeted()
            if self._theirs is None:
                self._limit = min(self._limit, UNPROVED_MOST)
            self._look()
            self._owner.opened()

    def _split(self, data: bytes) -> None:
        """Into frames, and the beginning of one that is not whole."""
        at, end, frames = 0, len(data), self._frames
        first = 0  # of what is not in the other end's mac yet
        heard = 0  # frames
        asked = False
        self._need = 4
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4])
            start = at + 4
            if size > self._limit or size < REFUSAL_SIZE:
                if size > 2:
                    self.abort(f"a frame of {size} bytes")
                    break
                after = start + PROOF if size == 2 else start
                if after > end:
                    self._need = after - at
                    break
                self._take(data[first:at])
                if size == 2 and not self._is_vouched(data[start:after]):
                    self.abort("what comes is not what was sent")
                    break
                heard = len(frames) if size == 2 else heard
                asked = asked or size == 0
                at = first = after
                continue
            if end - start < size:
                self._need = 4 + size
                break
            at = start + size
            frames.append(data[start:at])
        self._take(data[first:at])
        if asked:
            self._say_there()
        if self._theirs is None:
            heard = len(frames)  # to be refused
        if heard:
            self._frames = frames[heard:]
            if self._greeting is not None and self._theirs is not None:
                self.greeted()
            self._owner.arrived(frames[:heard], proved=self._theirs is not None)
        if at < end and not self._ending:
            self._part += data[at:]

    def _take(self, data: bytes) -> None:
        """It is in the next mac."""
        if self._theirs is not None and data:
            self._theirs.take(data)
            self._unvouched += len(data)
            if self._unvouched > VOUCHED + 4 + self._limit:  # less than enough, and a frame
                self.abort(f"nobody vouches for {self._unvouched} bytes")

    def _is_vouched(self, mac: bytes) -> bool:
        self._unvouched = 0
        return self._theirs is None or compare_digest(self._theirs.mac(), mac)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._ending:
            self._transport.pause_reading()
            self._say_there()  # who asks now is heard late

    def resume_reading(self) -> None:
        if self._transport is not None and not self._ending:
            self._transport.resume_reading()

    # ── silence ───────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        assert self._transport is not None
        if self._heard or not self._transport.is_reading():
            self._asked = False
        elif self._asked:
            self.abort(f"silent for {self._silence:g} s")
            return
        else:
            self._asked = True
            self._transport.write(ASKS)
        self._heard = False
        self._looking = self._loop.call_later(self._silence / LOOKS, self._look)

    def _say_there(self) -> None:
        # Who does not take what it was sent has enough of it to hear.
        if self._transport is not None and self._may_write and not self._paused:
            self._transport.write(IS_THERE)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def post(self, frame: bytes) -> None:
        transport = self._transport
        if self._wrote or self._queue or self._paused or transport is None or not self._may_write:
            self._queue.append(frame)
            self.queued += len(frame)
            if not self._called and self._may_write:
                self._called = True
                self._loop.call_soon(self._turn)
        else:
            self._wrote = True
            transport.write(self._vouched(len(frame).to_bytes(4) + frame))

    def _vouched(self, frames: bytes) -> bytes:
        self._ours.take(frames)
        return frames + VOUCHES + self._ours.mac()

    def _turn(self) -> None:
        self._called = self._wrote = False
        if not self._paused:
            self._flush()

    def _flush(self) -> None:
        queue, transport = self._queue, self._transport
        if not queue or transport is None or not self._may_write:
            return
        parts: list[bytes] = []
        size = 0
        for frame in queue:
            parts += (len(frame).to_bytes(4), frame)
            size += 4 + len(frame)
            if size >= VOUCHED:
                transport.write(self._vouched(b"".join(parts)))
                parts.clear()
                size = 0
        queue.clear()
        self.queued = 0
        if parts:
            transport.write(self._vouched(b"".join(parts)))
        if not self._paused:
            self._owner.ready()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def unsent(self) -> list[bytes]:
        frames = list(self._queue)
        self._queue.clear()
        self.queued = 0
        return frames
