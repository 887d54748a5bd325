"""Stability of views: an archive finds an upper bound for the messages that failed members can have delivered.

Each view has such a delivery bound: the last sequence of each publisher that a member which failed before the
view can have delivered. The cut of the view covers only messages that the surviving members have received,
and a failed member may have been ahead of them. So the archive must see everything that was published before
the view change began. With total order (on a broker), this is every message before PREPARE in the archive's own
queue. Without it, the archive waits until each publisher has reported its last sequence, some time after the
view.

SB1  No member that had failed when PREPARE was sent has delivered anything beyond the bound.
SB2  Other members may hear a publisher that is silent here: its bound is UNBOUNDED until it is heard again.
SB3  A publisher may be heard for the first time after the bound was found. If it may have started before the
     view, its last sequence is added to the bound; until it reports its age, its bound is UNBOUNDED. This is
     recorded before any of its messages is stored. A bound that another archive has found is raised only by
     that archive, which informs the others at once.
SB4  It follows that if a bound does not contain a publisher that has reported its age to this archive, none of
     its messages was delivered. Nothing is known about publishers that have not reported it.
"""

from math import inf

from ..delivery_records import DeliveryRecords
from ..layer import MemberContext
from ..vector import Vector
from ..views import UNBOUNDED, ArchiveRecord, ViewId, ViewStability
from .publisher_state import PublisherState
from .receive_buffer import ReceiveBuffer

MAX_PREPARE_MARKERS = 64  # rounds; the oldest one is forgotten
MAX_WATCHED_BOUNDS = 64  # bounds of views that may still be raised; the oldest one stays as it is
# Publishers that are first heard later than this, times `failure_timeout`, do not raise the bound.
WATCH_TIMEOUT_FACTOR = 10


class StabilityTracker:
    def __init__(
        self, context: MemberContext, receive_buffer: ReceiveBuffer, table: DeliveryRecords
    ) -> None:
        self.context = context
        self.receive_buffer = receive_buffer
        self._prepare_markers: dict[ViewId, Vector] = {}
        self._unresolved: dict[ViewId, float] = {}  # with the time of agreement
        self._watches: dict[ViewId, StabilityWatch] = {}
        self._stored_publishers: set[bytes] = set()  # publishers that have stored messages
        # A new archive finds no bound for its first view: its queue has not received the earlier messages.
        self._has_seen_views = bool(table.view_records)
        if not context.options.has_total_order:
            for id_, settled in table.stability.items():
                unbounded = {p for p, s in settled.delivery_bound.items() if s == UNBOUNDED}
                if unbounded:
                    self._add_watch(id_, StabilityWatch(-inf, unbounded))

    def note_prepare_marker(self, round_: ViewId) -> list[ArchiveRecord]:
        """Handle a PREPARE that was broadcast: all messages before it in our queue are known now. Return the
        bounds of the views that waited for it."""
        if not self.context.options.has_total_order:
            return []
        bound = Vector({p: _highest_known(state) for p, state in self.receive_buffer.states()})
        self._prepare_markers[round_] = bound
        if len(self._prepare_markers) > MAX_PREPARE_MARKERS:
            del self._prepare_markers[min(self._prepare_markers)]
        ready = [id_ for id_ in self._unresolved if id_.number <= round_.number]
        for id_ in ready:
            del self._unresolved[id_]
        return [ViewStability(id_, bound) for id_ in ready]

    def note_view(self, view: ViewId, now: float) -> list[ArchiveRecord]:
        """Handle a new view. Return its bound, or nothing if the bound is not known yet."""
        had_seen_views, self._has_seen_views = self._has_seen_views, True
        if not had_seen_views:
            return []
        bound = self._prepare_markers.get(view)
        if bound is not None:
            return [ViewStability(view, bound)]
        self._unresolved[view] = now
        return []

    def note_stored(self, publisher: bytes, now: float) -> list[ArchiveRecord]:
        """Return the bounds to record before a message of this publisher is stored (SB3)."""
        if publisher in self._stored_publishers:
            return []
        self._stored_publishers.add(publisher)
        return self.tick(now)

    def tick(self, now: float) -> list[ArchiveRecord]:
        """Without total order: check whether all publishers have reported, or are silent."""
        if self.context.options.has_total_order:
            return []
        records: list[ArchiveRecord] = []
        for id_, agreed_at in list(self._unresolved.items()):
            bound = self._compute_bound(agreed_at, now)
            if bound is not None:
                del self._unresolved[id_]
                records.append(ViewStability(id_, bound))
                self._add_watch(
                    id_, StabilityWatch(agreed_at, {p for p, s in bound.items() if s == UNBOUNDED})
                )
        for id_, watch in list(self._watches.items()):
            raised = self._raise_bound(watch)
            if raised:
                records.append(ViewStability(id_, raised))
            if (
                not watch.unbounded
                and now
                >= watch.agreed_at + WATCH_TIMEOUT_FACTOR * self.context.options.failure_timeout
            ):
                del self._watches[id_]
        return records

    def publishers_with_known_age(self) -> list[bytes]:
        """Return the publishers that every bound covers, even if it does not contain them (SB4)."""
        return [
            publisher for publisher, state in self.receive_buffer.states() if state.status_at > -inf
        ]

    def _compute_bound(self, agreed_at: float, now: float) -> Vector | None:
        """Return the bound, or None if it is too early."""
        failure_timeout = self.context.options.failure_timeout
        if now < agreed_at + failure_timeout:
            return None
        bound = {}
        for publisher, state in self.receive_buffer.states():
            if self.receive_buffer.surely_started_after(publisher, agreed_at):
                continue
            if state.status_at >= agreed_at + failure_timeout:
                bound[publisher] = _highest_known(state)
            elif now - state.status_at >= 2 * failure_timeout:
                bound[publisher] = UNBOUNDED
            else:
                return None
        return Vector(bound)

    def _add_watch(self, id_: ViewId, watch: "StabilityWatch") -> None:
        watch.known_publishers.update(p for p, _ in self.receive_buffer.states())
        self._watches[id_] = watch
        if len(self._watches) > MAX_WATCHED_BOUNDS:
            del self._watches[next(iter(self._watches))]

    def _raise_bound(self, watch: "StabilityWatch") -> Vector:
        """SB2, SB3: return new bounds of publishers that were silent or unknown."""
        raised = {}
        failure_timeout = self.context.options.failure_timeout
        for publisher, state in self.receive_buffer.states():
            if publisher in watch.unbounded:
                if state.status_at >= watch.agreed_at + failure_timeout:
                    watch.unbounded.discard(publisher)
                    raised[publisher] = _highest_known(state)
            elif publisher not in watch.known_publishers:
                watch.known_publishers.add(publisher)
                if state.status_at == -inf:
                    watch.unbounded.add(publisher)
                    raised[publisher] = UNBOUNDED
                elif watch.agreed_at > -inf and not self.receive_buffer.surely_started_after(
                    publisher, watch.agreed_at
                ):
                    raised[publisher] = _highest_known(state)
        return Vector(raised)


class StabilityWatch:
    """A view whose bound was found, and may still be raised: for publishers in `unbounded`, and for new ones."""

    __slots__ = ("agreed_at", "known_publishers", "unbounded")

    def __init__(self, agreed_at: float, unbounded: set[bytes]) -> None:
        self.agreed_at = agreed_at
        self.unbounded = unbounded
        self.known_publishers: set[bytes] = set()


def _highest_known(state: PublisherState) -> int:
    return max(state.highest_known, state.next - 1)
