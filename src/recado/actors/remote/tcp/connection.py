"""One TCP connection that carries frames.

    handshake, then  | size u32 | frame |
                     | 0 u32 |             ping
                     | 1 u32 |             pong
                     | 2 u32 | mac 16 |    MAC of all frames so far, including their sizes

TCC1  Buffered input is bounded: unverified frames of MAC_INTERVAL_BYTES and one frame of `max_frame_bytes` more,
      plus one incomplete frame, plus one read. A size above the limit, or too small for any frame, closes the
      connection before the frame is read.
TCC2  The first frame posted after a read is written at once: usually it is the only one. Frames that follow in
      the same turn of the event loop are coalesced into one write. With this, and with handling messages within
      the read (`Node.frames_received`), an ask takes 1.4 times as long as a raw echo; with a turn of the loop
      for each step it takes 1.9 times as long.
TCC3  Frames that the socket does not accept are queued, and returned by `take_unsent` when the connection
      closes.
TCC4  A peer that connects to us and cannot prove that it has the cookie is disconnected when the handshake
      timer ends, because only an authentic frame cancels that timer. Until then each of its frames has at most
      UNAUTHENTICATED_MAX_BYTES.
TCC5  No frame of an authenticated peer is processed before the MAC that follows it was verified. So an attacker
      between the two ends cannot insert, drop or reorder frames (HS1). Each write has a MAC: 1 µs.
TCC6  A connection on which nothing is received is closed after at most `idle_timeout` seconds, in which the
      peer was pinged. An end that pauses reading under backpressure sends a pong by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto
from hmac import compare_digest
from typing import Final, Protocol, cast

from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.wire.frame import REFUSAL_MIN_BYTES

from .handshake import HELLO_BYTES, PROOF_BYTES, Handshake, StreamMac

READ_BUFFER_BYTES: Final = 256 * 1024
UNAUTHENTICATED_MAX_BYTES: Final = 4096  # of a frame that will only be refused
PING: Final = (0).to_bytes(4)
PONG: Final = (1).to_bytes(4)
MAC_MARKER: Final = (2).to_bytes(4)
MAC_INTERVAL_BYTES: Final = 64 * 1024  # frames, with their sizes, that share one MAC
# Idle checks within the idle timeout: the second one without input pings, the third one closes.
IDLE_CHECK_COUNT: Final = 3
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024  # buffered by the asyncio transport before it pauses us


class ConnectionOwner(Protocol):
    """The link that a connection belongs to."""

    def handshake_completed(self) -> None:
        """The peer has sent its hello and its proof, valid or not."""

    def frames_received(self, frames: list[bytes], *, authenticated: bool) -> None:
        """The frames of one read; `authenticated` if the peer has the cookie."""

    def buffer_drained(self) -> None:
        """There is space for more frames."""

    def connection_closed(self, reason: str) -> None:
        """Called once, when the socket is closed."""


class Phase(Enum):
    AWAIT_HELLO = auto()  # we may not write frames yet
    AWAIT_PROOF = auto()  # the peer's hello was answered: we may write frames
    OPEN = auto()
    CLOSING = auto()


class Activity(Enum):
    """The state of the idle check."""

    RECEIVED = auto()  # bytes came since the last check
    SILENT = auto()
    PINGED = auto()  # silent for a whole interval, and pinged


_WRITABLE: Final = (Phase.OPEN, Phase.AWAIT_PROOF)
_RECEIVED: Final = Activity.RECEIVED  # set for every read


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
        self._phase = Phase.AWAIT_HELLO
        self._handshake: Handshake | None = handshake  # None once it is completed
        self._outgoing_mac: StreamMac
        self._incoming_mac: StreamMac | None = None  # None if the peer is not authenticated
        self._max_frame_bytes = max_frame_bytes
        self._buffer = buffer  # shared by all connections: nothing stays in it between two reads
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Input
        self._unverified_frames: list[bytes] = []  # whose MAC was not received yet
        self._unverified_bytes = 0
        self._partial = bytearray()  # the beginning of an incomplete frame
        self._bytes_needed = 0  # size of `_partial` at which parsing can continue
        # Output
        self._queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self._has_written = False  # since the last read or coalesced write (TCC2)
        self._flush_scheduled = False
        self._write_paused = False
        # Timers and closing
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._idle_timeout = idle_timeout
        self._idle_timer: asyncio.TimerHandle | None = None
        self._activity = Activity.RECEIVED
        self._close_reason = "closed by the peer"
        self.closed = self._loop.create_future()  # done when the socket is closed

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES)
        if self._phase is Phase.CLOSING:  # aborted before the socket was connected
            self._transport.abort()
        elif self._handshake is not None:
            self._transport.write(self._handshake.hello)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._close_reason = str(exc) or type(exc).__name__
        self._phase = Phase.CLOSING
        self.cancel_handshake_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.closed.set_result(None)
        self._owner.connection_closed(self._close_reason)

    def eof_received(self) -> bool:
        return False

    def start_handshake_timer(self, seconds: float) -> None:
        """Close the connection if the handshake, and the first authentic frame of an initiating peer, take
        longer (TCC4)."""
        self._handshake_timer = self._loop.call_later(
            seconds, self.abort, f"handshake timeout after {seconds:g} s"
        )

    def cancel_handshake_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def close(self) -> None:
        """Write the queued frames, then close the socket."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
        self._phase = Phase.CLOSING

    def abort(self, reason: str) -> None:
        self._phase = Phase.CLOSING
        self._close_reason = reason
        if self._transport is not None:
            self._transport.abort()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._has_written = False
        self._activity = _RECEIVED
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
        received = self._partial
        if self._phase is Phase.AWAIT_HELLO:
            if len(received) < HELLO_BYTES:
                return
            try:
                proof = handshake.respond(bytes(received[:HELLO_BYTES]))
            except InvalidFrameError as error:
                self.abort(str(error))
                return
            del received[:HELLO_BYTES]
            assert self._transport is not None
            self._transport.write(proof)
            self._outgoing_mac = handshake.outgoing_mac()
            self._phase = Phase.AWAIT_PROOF
            self._flush()
        if self._phase is Phase.AWAIT_PROOF and len(received) >= PROOF_BYTES:
            self._incoming_mac = handshake.verify_proof(bytes(received[:PROOF_BYTES]))
            del received[:PROOF_BYTES]
            self._handshake = None
            self._phase = Phase.OPEN
            if handshake.is_initiator:
                self.cancel_handshake_timer()
            if self._incoming_mac is None:
                self._max_frame_bytes = min(self._max_frame_bytes, UNAUTHENTICATED_MAX_BYTES)
            self._check_idle()
            self._owner.handshake_completed()

    def _parse_frames(self, data: bytes) -> None:
        """Split the input into frames, keep the incomplete rest, and pass on the verified frames."""
        at, end, frames = 0, len(data), self._unverified_frames
        mac_start = 0  # of the data that is not in the incoming MAC yet
        verified_count = 0  # frames
        ping_received = False
        self._bytes_needed = 4
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4])
            start = at + 4
            if size > self._max_frame_bytes or size < REFUSAL_MIN_BYTES:
                if size > 2:
                    self.abort(
                        f"frame size {size} is not between {REFUSAL_MIN_BYTES} and "
                        f"{self._max_frame_bytes} bytes (max_frame_bytes)"
                    )
                    break
                after = start + PROOF_BYTES if size == 2 else start
                if after > end:
                    self._bytes_needed = after - at
                    break
                self._update_incoming_mac(data[mac_start:at])
                if size == 2 and not self._verify_mac(data[start:after]):
                    self.abort("wrong MAC: frames were changed in transit")
                    break
                verified_count = len(frames) if size == 2 else verified_count
                ping_received = ping_received or size == 0
                at = mac_start = after
                continue
            if end - start < size:
                self._bytes_needed = 4 + size
                break
            at = start + size
            frames.append(data[start:at])
        self._update_incoming_mac(data[mac_start:at])
        if ping_received:
            self._send_pong()
        if self._incoming_mac is None:
            verified_count = len(frames)  # passed on to be refused
        if verified_count:
            self._unverified_frames = frames[verified_count:]
            if self._handshake_timer is not None and self._incoming_mac is not None:
                self.cancel_handshake_timer()
            self._owner.frames_received(
                frames[:verified_count], authenticated=self._incoming_mac is not None
            )
        if at < end and self._phase is not Phase.CLOSING:
            self._partial += data[at:]

    def _update_incoming_mac(self, data: bytes) -> None:
        if self._incoming_mac is not None and data:
            self._incoming_mac.update(data)
            self._unverified_bytes += len(data)
            # A peer sends a MAC once it has reached the interval, that is after at most one more frame.
            if self._unverified_bytes > MAC_INTERVAL_BYTES + 4 + self._max_frame_bytes:
                self.abort(f"{self._unverified_bytes} bytes received without a MAC")

    def _verify_mac(self, mac: bytes) -> bool:
        self._unverified_bytes = 0
        return self._incoming_mac is None or compare_digest(self._incoming_mac.digest(), mac)

    def pause_reading(self) -> None:
        if self._transport is not None and self._phase is not Phase.CLOSING:
            self._transport.pause_reading()
            self._send_pong()  # a ping of the peer would be read late

    def resume_reading(self) -> None:
        if self._transport is not None and self._phase is not Phase.CLOSING:
            self._transport.resume_reading()

    # ── idle check ────────────────────────────────────────────────────────────────────────────────────────

    def _check_idle(self) -> None:
        assert self._transport is not None
        if self._activity is Activity.RECEIVED or not self._transport.is_reading():
            self._activity = Activity.SILENT
        elif self._activity is Activity.PINGED:
            self.abort(f"nothing received for {self._idle_timeout:g} s (read_timeout)")
            return
        else:
            self._activity = Activity.PINGED
            self._transport.write(PING)
        self._idle_timer = self._loop.call_later(
            self._idle_timeout / IDLE_CHECK_COUNT, self._check_idle
        )

    def _send_pong(self) -> None:
        # While writes are paused the peer has unread input, which shows that we are alive.
        if self._transport is not None and self._may_write and not self._write_paused:
            self._transport.write(PONG)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _may_write(self) -> bool:
        return self._phase in _WRITABLE

    def post(self, frame: bytes) -> None:
        """Write the frame now, or queue it (TCC2)."""
        transport = self._transport
        if (
            self._has_written
            or self._queue
            or self._write_paused
            or transport is None
            or self._phase not in _WRITABLE
        ):
            self._queue.append(frame)
            self.queued_bytes += len(frame)
            if not self._flush_scheduled and self._phase in _WRITABLE:
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
        """Write all queued frames, with a MAC for each MAC_INTERVAL_BYTES."""
        queue, transport = self._queue, self._transport
        if not queue or transport is None or not self._may_write:
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
        """Return the queued frames and empty the queue."""
        frames = list(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        return frames
