"""The transfer of the state of a range to another node, in chunks of bounded size.

The node that needs the state asks for one chunk after the other, so it sets the pace. The source makes a copy of the
state at the first request (`RangeState.copy`: topics are shared until they change) and goes on executing commands.
The last chunk has the entries of the log that follow the copy. If chunks or requests are lost, the request is
repeated; if the source is gone, another one is asked, from the start.

TF1  All chunks of a transfer are from one copy: each attempt has a new `request` number, and chunks of other
     attempts are ignored.
TF2  A transfer is installed as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .configuration import RangeId
from .messages import PullState, RangeMessage, StateChunk, StateUnknown
from .peer_address import PeerAddress
from .range_state import Entry, RangeState
from .topic import Topic

CHUNK_TOPICS_MAX: Final = 1_000
CHUNK_BYTES_MAX: Final = 256 << 10
TOPIC_BYTES: Final = 100
SUBSCRIPTION_BYTES: Final = 100
RESEND_S: Final = 0.3
ATTEMPTS_MAX: Final = 3
"""Requests for one chunk before another source is asked."""
EXPORT_IDLE_S: Final = 5.0
"""A copy that is not asked for during this time is dropped."""


class StateExport:
    """A copy of the state at its source, while it is sent."""

    def __init__(
        self,
        range_id: RangeId,
        request: int,
        state: RangeState,
        entries: Sequence[Entry],
        now: float,
    ) -> None:
        self.request = request
        self.used_at = now
        self._range_id = range_id
        self._state = state
        self._entries = tuple(entries)
        self._topics = list(state.topics.values())
        self._starts = [0]
        """The first topic of each chunk that was asked for."""

    def chunk(self, number: int, now: float) -> StateChunk | None:
        """Return a chunk; None if it is none of those that can be asked for now."""
        self.used_at = now
        if number >= len(self._starts):
            return None
        start = self._starts[number]
        stop = self._find_stop(start)
        state = self._state
        is_last = stop == len(self._topics)
        if not is_last and number + 1 == len(self._starts):
            self._starts.append(stop)
        return StateChunk(
            self._range_id,
            self.request,
            number,
            is_last,
            state.position,
            state.position + len(self._entries),
            tuple(topic.record() for topic in self._topics[start:stop]),
            tuple(state.pending.values()) if is_last else (),
            tuple(state.answers.records()) if is_last else (),
            self._entries if is_last else (),
        )

    def _find_stop(self, start: int) -> int:
        size_bytes, stop = 0, start
        while (
            stop < len(self._topics)
            and stop - start < CHUNK_TOPICS_MAX
            and size_bytes < CHUNK_BYTES_MAX
        ):
            size_bytes += _size_bytes(self._topics[stop])
            stop += 1
        return stop


def _size_bytes(topic: Topic) -> int:
    size = TOPIC_BYTES + SUBSCRIPTION_BYTES * len(topic.subscriptions)
    size += sum(map(len, topic.fields.values()))
    return size + sum(each.message.size_bytes for each in topic.retained)


class StateImport:
    """The state of a range while it arrives."""

    def __init__(self, range_id: RangeId, sources: Sequence[PeerAddress], request: int) -> None:
        self.range_id = range_id
        self.sources = list(sources)
        self.outbox: list[tuple[PeerAddress, RangeMessage]] = []
        self._request = request
        self._next_chunk = 0
        self._attempts = 0
        self._sent_at = 0.0
        self._state = RangeState()

    def add_source(self, peer: PeerAddress) -> None:
        if peer not in self.sources:
            self.sources.append(peer)

    @property
    def source(self) -> PeerAddress | None:
        return self.sources[0] if self.sources else None

    def ask(self, now: float) -> None:
        self._sent_at = now
        if self.sources:
            message = PullState(self.range_id, self._request, self._next_chunk)
            self.outbox.append((self.sources[0], message))

    def tick(self, now: float, next_request: int) -> bool:
        """Repeat what is unanswered; return whether `next_request` was used, to begin again at another source."""
        if now < self._sent_at + RESEND_S:
            return False
        self._attempts += 1
        if self._attempts >= ATTEMPTS_MAX:
            self._begin_again(next_request, now)
            return True
        self.ask(now)
        return False

    def _begin_again(self, request: int, now: float) -> None:
        self.sources = self.sources[1:] + self.sources[:1]
        self._request = request
        self._next_chunk = self._attempts = 0
        self._state = RangeState()
        self.ask(now)

    def unknown(self, message: StateUnknown) -> None:
        """The source has no such state: ask another one at the next tick."""
        if message.request == self._request:
            self._attempts = ATTEMPTS_MAX

    def receive(self, chunk: StateChunk, now: float) -> tuple[RangeState, tuple[Entry, ...]] | None:
        """Add a chunk; return the whole state and the entries that follow it when it was the last."""
        if chunk.request != self._request or chunk.chunk != self._next_chunk:
            return None
        state = self._state
        for record in chunk.topics:
            state.restore_topic(record)
        self._next_chunk += 1
        self._attempts = 0
        if not chunk.is_last:
            self.ask(now)
            return None
        state.position = chunk.position
        state.pending = {each.id: each for each in chunk.pending}
        state.restore_answers(chunk.answers)
        return state, chunk.entries
