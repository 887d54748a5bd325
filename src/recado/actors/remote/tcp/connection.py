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

from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.wire.frame import REFUSAL_MIN_BYTES

from .handshake import HELLO_BYTES, PROOF_BYTES, Handshake, StreamMac

READ_BUFFER_BYTES: Final = 256 * 1024  # bytes at a time
UNAUTHENTICATED_MAX_BYTES: Final = 4096  # bytes of a frame, which is only refused
PING: Final = (0).to_bytes(4)
PONG: Final = (1).to_bytes(4)
MAC_MARKER: Final = (2).to_bytes(4)
MAC_INTERVAL_BYTES: Final = (
    64 * 1024
)  # bytes of frames, with their sizes, for which one mac is enough
# Within the time of silence: at the second one in silence it is asked, the third is the end.
IDLE_CHECK_COUNT: Final = 3
WRITE_HIGH_WATER_BYTES: Final = (
    256 * 1024
)  # bytes that the socket's transport holds before it says stop


class ConnectionOwner(Protocol):
    """Whoever the connection is for."""

    def handshake_completed(self) -> None:
        """The other end has answered, as a node does."""

    def frames_received(self, frames: list[bytes], *, authenticated: bool) -> None:
        """What one read brought; `proved` if the other end has the cookie."""

    def buffer_drained(self) -> None:
        """There is room for more."""

    def connection_closed(self, reason: str) -> None:
        """Once, when the connection is gone."""


class TcpConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        owner: ConnectionOwner,
        handshake: Handshake,
        max_frame_bytes: int,
        buffer: memoryview,
        idle_timeout: float,
    ) -> None:
        self._owner = owner
        self._handshake: Handshake | None = handshake  # until it is done
        self._outgoing_mac: StreamMac
        self._incoming_mac: StreamMac | None = None  # if it is proved
        self._max_frame_bytes = max_frame_bytes
        self._buffer = buffer  # shared by all connections: nothing stays in it between two reads
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._can_write = False  # frames: when the other end's challenge was answered
        self._unverified_frames: list[bytes] = []  # whose mac has not come,
        self._unverified_bytes = 0  # so many bytes
        self._partial = bytearray()  # the beginning of a frame whose end has not come
        self._bytes_needed = 0  # how long the part has to be before it is worth looking at
        self._queue: deque[bytes] = deque()
        self._has_written = False  # since the last read, or the last turn in which something was
        self._flush_scheduled = False
        self._write_paused = False
        self._close_reason = "closed by the other side"
        self.queued_bytes = 0  # bytes in the queue
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._idle_timeout = idle_timeout
        self._idle_timer: asyncio.TimerHandle | None = None
        self._has_read = True  # something, since the last look
        self._ping_sent = False
        self._closing = False
        self.closed = self._loop.create_future()  # when the socket is

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES)
        if self._closing:  # before it had begun
            self._transport.abort()
        elif self._handshake is not None:
            self._transport.write(self._handshake.hello)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._close_reason = str(exc) or type(exc).__name__
        self._closing = True
        self.cancel_handshake_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.closed.set_result(None)
        self._owner.connection_closed(self._close_reason)

    def eof_received(self) -> bool:
        return False

    def start_handshake_timer(self, seconds: float) -> None:
        """Whoever does not shake hands in that time, or if it called, has nothing to say that is proved, is not
        kept (P4)."""
        self._handshake_timer = self._loop.call_later(seconds, self.abort, "nothing came in time")

    def cancel_handshake_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        self._closing = True
        self._close_reason = reason
        if self._transport is not None:
            self._transport.abort()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._has_written = False
        self._has_read = True
        if self._partial or self._handshake is not None:
            self._partial += self._buffer[:nbytes]
            if self._handshake is not None:
                self._continue_handshake(self._handshake)
            if len(self._partial) < self._bytes_needed or self._handshake is not None:
                return
            data = bytes(self._partial)
            self._partial.clear()
        else:
            data = bytes(self._buffer[:nbytes])
        self._parse_frames(data)

    def _continue_handshake(self, handshake: Handshake) -> None:
        part = self._partial
        if not self._can_write:
            if len(part) < HELLO_BYTES:
                return
            try:
                proof = handshake.respond(bytes(part[:HELLO_BYTES]))
            except InvalidFrameError as error:
                self.abort(str(error))
                return
            del part[:HELLO_BYTES]
            assert self._transport is not None
            self._transport.write(proof)
            self._outgoing_mac = handshake.outgoing_mac()
            self._can_write = True
            self._flush()
        if len(part) >= PROOF_BYTES and not self._closing:
            self._incoming_mac = handshake.verify_proof(bytes(part[:PROOF_BYTES]))
            del part[:PROOF_BYTES]
            self._handshake = None
            if handshake.is_initiator:
                self.cancel_handshake_timer()
            if self._incoming_mac is None:
                self._max_frame_bytes = min(self._max_frame_bytes, UNAUTHENTICATED_MAX_BYTES)
            self._check_idle()
            self._owner.handshake_completed()

    def _parse_frames(self, data: bytes) -> None:
        """Into frames, and the beginning of one that is not whole."""
        at, end, frames = 0, len(data), self._unverified_frames
        first = 0  # of what is not in the other end's mac yet
        verified_count = 0  # frames
        ping_received = False
        self._bytes_needed = 4
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4])
            start = at + 4
            if size > self._max_frame_bytes or size < REFUSAL_MIN_BYTES:
                if size > 2:
                    self.abort(f"a frame of {size} bytes")
                    break
                after = start + PROOF_BYTES if size == 2 else start
                if after > end:
                    self._bytes_needed = after - at
                    break
                self._update_incoming_mac(data[first:at])
                if size == 2 and not self._verify_mac(data[start:after]):
                    self.abort("what comes is not what was sent")
                    break
                verified_count = len(frames) if size == 2 else verified_count
                ping_received = ping_received or size == 0
                at = first = after
                continue
            if end - start < size:
                self._bytes_needed = 4 + size
                break
            at = start + size
            frames.append(data[start:at])
        self._update_incoming_mac(data[first:at])
        if ping_received:
            self._send_pong()
        if self._incoming_mac is None:
            verified_count = len(frames)  # to be refused
        if verified_count:
            self._unverified_frames = frames[verified_count:]
            if self._handshake_timer is not None and self._incoming_mac is not None:
                self.cancel_handshake_timer()
            self._owner.frames_received(
                frames[:verified_count], authenticated=self._incoming_mac is not None
            )
        if at < end and not self._closing:
            self._partial += data[at:]

    def _update_incoming_mac(self, data: bytes) -> None:
        """It is in the next mac."""
        if self._incoming_mac is not None and data:
            self._incoming_mac.update(data)
            self._unverified_bytes += len(data)
            if (
                self._unverified_bytes > MAC_INTERVAL_BYTES + 4 + self._max_frame_bytes
            ):  # less than enough, and a frame
                self.abort(f"nobody vouches for {self._unverified_bytes} bytes")

    def _verify_mac(self, mac: bytes) -> bool:
        self._unverified_bytes = 0
        return self._incoming_mac is None or compare_digest(self._incoming_mac.digest(), mac)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()
            self._send_pong()  # who asks now is heard late

    def resume_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    # ── silence ───────────────────────────────────────────────────────────────────────────────────────────

    def _check_idle(self) -> None:
        assert self._transport is not None
        if self._has_read or not self._transport.is_reading():
            self._ping_sent = False
        elif self._ping_sent:
            self.abort(f"silent for {self._idle_timeout:g} s")
            return
        else:
            self._ping_sent = True
            self._transport.write(PING)
        self._has_read = False
        self._idle_timer = self._loop.call_later(
            self._idle_timeout / IDLE_CHECK_COUNT, self._check_idle
        )

    def _send_pong(self) -> None:
        # Who does not take what it was sent has enough of it to hear.
        if self._transport is not None and self._can_write and not self._write_paused:
            self._transport.write(PONG)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def post(self, frame: bytes) -> None:
        transport = self._transport
        if (
            self._has_written
            or self._queue
            or self._write_paused
            or transport is None
            or not self._can_write
        ):
            self._queue.append(frame)
            self.queued_bytes += len(frame)
            if not self._flush_scheduled and self._can_write:
                self._flush_scheduled = True
                self._loop.call_soon(self._flush_turn)
        else:
            self._has_written = True
            transport.write(self._append_mac(len(frame).to_bytes(4) + frame))

    def _append_mac(self, frames: bytes) -> bytes:
        self._outgoing_mac.update(frames)
        return frames + MAC_MARKER + self._outgoing_mac.digest()

    def _flush_turn(self) -> None:
        self._flush_scheduled = self._has_written = False
        if not self._write_paused:
            self._flush()

    def _flush(self) -> None:
        queue, transport = self._queue, self._transport
        if not queue or transport is None or not self._can_write:
            return
        parts: list[bytes] = []
        size = 0
        for frame in queue:
            parts += (len(frame).to_bytes(4), frame)
            size += 4 + len(frame)
            if size >= MAC_INTERVAL_BYTES:
                transport.write(self._append_mac(b"".join(parts)))
                parts.clear()
                size = 0
        queue.clear()
        self.queued_bytes = 0
        if parts:
            transport.write(self._append_mac(b"".join(parts)))
        if not self._write_paused:
            self._owner.buffer_drained()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._flush()

    def take_unsent(self) -> list[bytes]:
        frames = list(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        return frames
