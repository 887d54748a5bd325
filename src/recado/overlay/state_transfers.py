"""All transfers of a node: the states that it imports, and those that it exports to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .configuration import RangeId
from .messages import PullState, RangeMessage, StateChunk, StateUnknown
from .peer_address import PeerAddress
from .range_state import Entry, RangeState
from .transfer import EXPORT_IDLE_S, StateExport, StateImport

WholeState = tuple[RangeState, Sequence[Entry]]
"""The state of a range, and the entries of the log that follow it."""


class StateTransfers:
    """At most one import for each range, and one export for each range and peer."""

    def __init__(
        self, own: PeerAddress, find_state: Callable[[RangeId], WholeState | None]
    ) -> None:
        """`find_state` returns a copy of the state of a range; None if this node does not have it."""
        self._own = own
        self._find_state = find_state
        self._imports: dict[RangeId, StateImport] = {}
        self._exports: dict[tuple[PeerAddress, RangeId], StateExport] = {}
        self._next_request = 1

    def is_importing(self, range_id: RangeId) -> bool:
        return range_id in self._imports

    def start_import(self, range_id: RangeId, sources: Sequence[PeerAddress], now: float) -> None:
        """Request the state from the first source, or add the sources to an import that is running."""
        if range_id in self._imports:
            for source in sources:
                self._imports[range_id].add_source(source)
            return
        others = list(dict.fromkeys(source for source in sources if source != self._own))
        started = self._imports[range_id] = StateImport(range_id, others, self._next_request)
        self._next_request += 1
        started.ask(now)

    def cancel_import(self, range_id: RangeId) -> None:
        self._imports.pop(range_id, None)

    def receive(
        self, message: StateChunk | StateUnknown, now: float
    ) -> tuple[WholeState, list[PeerAddress]] | None:
        """Return the state if the message completes it, with the sources for another import; the last one last."""
        attempt = self._imports.get(message.range_id)
        if attempt is None:
            return None
        if isinstance(message, StateUnknown):
            attempt.unknown(message)
            return None
        whole = attempt.receive(message, now)
        if whole is None:
            return None
        del self._imports[message.range_id]
        return whole, attempt.sources[1:] + attempt.sources[:1]

    def export(self, peer: PeerAddress, message: PullState, now: float) -> RangeMessage:
        """Return the requested chunk, or that the state or this chunk of it is not here."""
        key = (peer, message.range_id)
        export = self._exports.get(key)
        if export is None or export.request != message.request:
            found = self._find_state(message.range_id) if message.chunk == 0 else None
            if found is None:
                return StateUnknown(message.range_id, message.request)
            export = StateExport(message.range_id, message.request, *found, now)
            self._exports[key] = export
        chunk = export.chunk(message.chunk, now)
        return chunk or StateUnknown(message.range_id, message.request)

    def end_exports(self, range_id: RangeId) -> None:
        for key in [each for each in self._exports if each[1] == range_id]:
            del self._exports[key]

    def tick(self, now: float) -> None:
        """Repeat requests without an answer, and drop exports that are not asked for."""
        for each in self._imports.values():
            if each.tick(now, self._next_request):
                self._next_request += 1
        for key in [k for k, each in self._exports.items() if now >= each.used_at + EXPORT_IDLE_S]:
            del self._exports[key]

    def take_outbox(self) -> list[tuple[PeerAddress, RangeMessage]]:
        """Return the messages to send."""
        taken: list[tuple[PeerAddress, RangeMessage]] = []
        for each in self._imports.values():
            taken += each.outbox
            each.outbox.clear()
        return taken
