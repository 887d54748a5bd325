"""UNIFORM: delivers only messages that enough archives have on disk, so that a delivered message is not lost to
other subscribers.

UN1  A message is delivered when as many archives as its view requires have reported it as durable, in views
     that this member was in.
UN2  The order is preserved: per publisher, and in total with TOTAL; a view waits for all messages before it.
UN3  The buffer is bounded: without archives the feed fails instead of growing.
"""

from collections import deque

from ..boundary import ReportFailure
from ..layer import (
    BatchReleased,
    Layer,
    MemberContext,
    MessagesLost,
    PacketReceived,
    UpEvent,
    ViewAgreed,
    ViewInstalled,
)
from ..packet import DurableReport
from ..vector import update_bounded
from ..views import View, ViewId

PendingEvent = BatchReleased | MessagesLost | ViewInstalled

BATCH_OVERHEAD_BYTES = 200  # estimated memory of a pending batch beyond its data
MAX_AGREED_VIEWS = 16  # recent ones, and as many that are not installed yet
MAX_TRACKED_ARCHIVES = 64


class UniformLayer(Layer):
    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        # By name: a restarted archive has the same disk and is not a second copy.
        self._durable_by_archive: dict[str, dict[bytes, int]] = {}
        self._recent_views: deque[ViewId] = deque(maxlen=MAX_AGREED_VIEWS)
        self._agreed_views: deque[View] = deque()  # not installed yet
        self._pending: deque[PendingEvent] = deque()
        self._pending_bytes = 0
        self._view: View | None = None

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case BatchReleased(batch):
                self._pending_bytes += BATCH_OVERHEAD_BYTES + len(batch.block.data)
                self._pending.append(event)
                self._release(now)
                self._check_limit()
            case MessagesLost() | ViewInstalled():
                self._pending.append(event)
                self._release(now)
            case ViewAgreed(record):
                self._recent_views.append(record.view.id)
                self._agreed_views.append(record.view)
                if len(self._agreed_views) > MAX_AGREED_VIEWS:
                    del self._agreed_views[1]  # `_required_copies` needs the first
                self._pass_up(event, now)
            case PacketReceived(_, sender, DurableReport(view, vector)):
                self._pass_up(event, now)
                is_tracked = (
                    sender.name in self._durable_by_archive
                    or len(self._durable_by_archive) < MAX_TRACKED_ARCHIVES
                )
                if view in self._recent_views and is_tracked:
                    update_bounded(self._durable_by_archive.setdefault(sender.name, {}), vector)
                    self._release(now)
            case _:
                self._pass_up(event, now)

    def _required_copies(self) -> int:
        """Return how many archives must have a message before it is delivered: the number of the current view.

        If the next view waits and requires fewer, because archives of the current view have failed, the number
        of the next agreed view suffices, even if that view was never installed. If its archives fail too,
        delivery waits until they are back, because with fewer copies it would not be uniform.
        """
        required = self.context.required_copies(self._view)
        if self._agreed_views and any(isinstance(event, ViewInstalled) for event in self._pending):
            return min(required, self.context.required_copies(self._agreed_views[0]))
        return required

    def _durable_up_to(self, publisher: bytes, copies: int) -> int:
        """Return the last sequence of a publisher up to which at least `copies` archives have its messages."""
        ranked = sorted(
            (vector.get(publisher, 0) for vector in self._durable_by_archive.values()), reverse=True
        )
        return ranked[copies - 1] if len(ranked) >= copies else 0

    def _release(self, now: float) -> None:
        """Deliver the pending messages that enough archives have. With TOTAL, a message waits for all messages
        before it; otherwise only for those of its publisher (UN2)."""
        total = "TOTAL" in self.context.layer_names
        copies = self._required_copies()
        blocked_publishers: set[bytes] = set()
        view_waits = False  # a view stays pending, and so do all events after it
        view_installed = False  # the events after the view are checked by the call at the end
        remaining: deque[PendingEvent] = deque()
        ready: list[PendingEvent] = []
        durable: dict[bytes, int] = {}
        waiting, self._pending = self._pending, remaining
        for event in waiting:
            is_blocked = bool(remaining) and (
                total or view_waits or isinstance(event, ViewInstalled)
            )
            if view_installed or is_blocked or self._publisher_of(event) in blocked_publishers:
                remaining.append(event)
                view_waits = view_waits or isinstance(event, ViewInstalled)
                continue
            if not isinstance(event, BatchReleased):
                ready.append(event)
                view_installed = isinstance(event, ViewInstalled)
                continue
            batch = event.batch
            publisher = batch.publisher
            if publisher not in durable:
                durable[publisher] = self._durable_up_to(publisher, copies)
            last = min(batch.last, durable[publisher])
            if last >= batch.first:
                ready.append(BatchReleased(batch.clip(batch.first, last)))
                self._pending_bytes -= BATCH_OVERHEAD_BYTES + len(batch.block.data)
            if last < batch.last:
                rest = batch.clip(max(last + 1, batch.first), batch.last)
                remaining.append(BatchReleased(rest))
                blocked_publishers.add(publisher)
                if last >= batch.first:
                    self._pending_bytes += BATCH_OVERHEAD_BYTES + len(rest.block.data)
        for event in ready:
            if isinstance(event, ViewInstalled):
                self._enter_view(event.record.view)
            self._pass_up(event, now)
        if view_installed:
            self._release(now)

    def _enter_view(self, view: View) -> None:
        self._view = view
        while self._agreed_views and self._agreed_views[0].id <= view.id:
            self._agreed_views.popleft()

    def _publisher_of(self, event: PendingEvent) -> bytes:
        match event:
            case BatchReleased(batch):
                return batch.publisher
            case MessagesLost(lost):
                return lost.publisher
            case _:
                return b""

    def _check_limit(self) -> None:
        if self._pending_bytes > self.context.options.buffer_bytes and not self.context.has_failed:
            self.context.has_failed = True
            copies = self._required_copies()
            reason = (
                f"{self._pending_bytes:,} bytes wait to be durable in {copies} archives, the limit "
                f"(buffer_bytes) is {self.context.options.buffer_bytes:,}: start archives, or use a "
                "stack without UNIFORM"
            )
            self.context.effects.append(ReportFailure(reason))
