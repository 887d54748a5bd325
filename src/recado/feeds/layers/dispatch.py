"""DISPATCH: the top of a stack. Delivers messages to the application and acknowledges them to the archives.

FD1  The vector contains the delivered messages of each publisher from its start position. Skipped messages are
     holes in it, and in the acknowledgement.
FD2  A view is acknowledged after everything before it was delivered. Only delivered messages are acknowledged.
"""

from msgspec.structs import replace

from ..boundary import (
    ARCHIVES,
    DeliverBatch,
    LeaveRequested,
    ReportLoss,
    ReportView,
    SendAcknowledgement,
    SendAddressed,
)
from ..layer import (
    BatchReleased,
    DeliveryStarted,
    DownEvent,
    Layer,
    MemberContext,
    MessagesLost,
    PublisherStartSet,
    UpEvent,
    ViewInstalled,
)
from ..packet import Acknowledgement
from ..vector import DeliveryProgress, Vector
from ..views import NO_VIEW, Role, ViewId
from ..wire import encode
from .receive_buffer import ORDER_PREFIX

MAX_ACKNOWLEDGED_HOLES = 64  # in an acknowledgement that must fit in a datagram


class DispatchLayer(Layer):
    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self._delivered = DeliveryProgress(Vector())
        self._start: DeliveryProgress | None = None
        self._view_id: ViewId = NO_VIEW
        self._has_unacknowledged = False
        self._next_acknowledgement: float | None = None

    def up(self, event: UpEvent, now: float) -> None:
        effects = self.context.effects
        match event:
            case BatchReleased(batch):
                self._delivered.deliver(batch.publisher, batch.first, batch.last)
                self._has_unacknowledged = True
                effects.append(DeliverBatch(batch))
            case MessagesLost(lost):
                self._delivered.skip(lost.publisher, lost.first, lost.last)
                self._has_unacknowledged = True
                effects.append(ReportLoss(lost))
            case DeliveryStarted(vector):
                self._start, self._delivered = DeliveryProgress(vector), DeliveryProgress(vector)
            case PublisherStartSet(publisher, last) if self._start is not None:
                self._start.start_after(publisher, last)
                self._delivered.start_after(publisher, last)
            case ViewInstalled(record):
                cut = Vector(
                    {p: s for p, s in record.cut.items() if not p.startswith(ORDER_PREFIX)}
                )
                if self._start is None:
                    self._start, self._delivered = DeliveryProgress(cut), DeliveryProgress(cut)
                self._view_id = record.view.id
                effects.append(ReportView(record.view, cut))
                self._send_acknowledgement(now)
            case _:
                pass

    def down(self, event: DownEvent, now: float) -> None:
        if (
            isinstance(event, LeaveRequested)
            and self._start is not None
            and self._sends_acknowledgements()
        ):
            ack = self._build_acknowledgement(
                self._start, self.vector if event.vector is None else event.vector
            )
            self.context.effects.append(
                SendAddressed(ARCHIVES, encode(replace(ack, is_final=True)))
            )
        self._pass_down(event, now)

    def _sends_acknowledgements(self) -> bool:
        return self.context.role is Role.SUBSCRIBER

    def _send_acknowledgement(self, now: float) -> None:
        self._has_unacknowledged = False
        if self._sends_acknowledgements() and self._start is not None:
            ack = self._build_acknowledgement(self._start, self.vector)
            self.context.effects.append(SendAcknowledgement(encode(ack)))
            self._next_acknowledgement = now + self.context.options.acknowledge_interval

    def _build_acknowledgement(self, start: DeliveryProgress, vector: Vector) -> Acknowledgement:
        """Build an acknowledgement that fits in one packet."""
        start_vector = start.snapshot()
        if not self.context.options.has_total_order:
            start_vector, vector = (
                start_vector.limit_holes(MAX_ACKNOWLEDGED_HOLES),
                vector.limit_holes(MAX_ACKNOWLEDGED_HOLES),
            )
        return Acknowledgement(self._view_id, start_vector, vector, False)

    def tick(self, now: float) -> None:
        if self._next_acknowledgement is not None and now >= self._next_acknowledgement:
            self._next_acknowledgement = now + self.context.options.acknowledge_interval
            if self._has_unacknowledged:
                self._send_acknowledgement(now)

    def deadline(self) -> float | None:
        return self._next_acknowledgement

    @property
    def vector(self) -> Vector:
        return self._delivered.snapshot()
