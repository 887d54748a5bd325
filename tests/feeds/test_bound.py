"""What comes live to one that has returned, by what an archive has told of its earlier incarnations: SYNC alone."""

import pytest

from recado.feeds.boundary import PacketRoute
from recado.feeds.layer import BatchReleased, PacketReceived, ViewInstalled
from recado.feeds.layers.receive_buffer import ReceiveBuffer
from recado.feeds.layers.sync import SyncLayer
from recado.feeds.options import RecoveryPolicy
from recado.feeds.packet import DeliveryBound, DeliveryBoundRequest, RecoveryReply
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty

from .test_layers import OTHER, Between, P, batch, record


class Returned:
    """A subscriber that began at 10 s and is live again, with what an archive has told of its earlier incarnations;
    `failure_timeout` is 2 s."""

    def __init__(self, bound: dict[bytes, int], *, ordered: bool = False) -> None:
        self.receive_buffer = ReceiveBuffer(10_000)
        self.receive_buffer.start({}, 10.0)
        self.receive_buffer.release_limit = None
        self.sync = Between(
            lambda context: SyncLayer(context, self.receive_buffer),
            recovery=RecoveryPolicy.PESSIMISTIC,
            has_total_order=ordered,
        )
        self.sync.layer.context.agreed_view = record(1, "a").view
        self.sync.layer.start(10.0)
        self.sync.layer.up(ViewInstalled(record(1, "a")), 10.0)
        self.sync.layer.up(
            PacketReceived(
                PacketRoute.ADDRESSED, OTHER, RecoveryReply(0, Vector(), [], 0, False, {})
            ),
            10.0,
        )
        self.bound(bound, 10.0)

    def bound(self, bound: dict[bytes, int], now: float) -> None:
        self.sync.layer.up(PacketReceived(PacketRoute.ADDRESSED, OTHER, DeliveryBound(bound)), now)

    def comes(self, sequence: int, now: float) -> Certainty:
        """What the next message of P is called."""
        message = batch(sequence)
        assert self.receive_buffer.receive(message, now)
        self.sync.layer.up(BatchReleased(message), now)
        risen = self.sync.risen[-1]
        assert isinstance(risen, BatchReleased)
        return risen.batch.certainty

    def asks(self, now: float) -> bool:
        self.sync.fallen.clear()
        self.sync.layer.tick(now)
        return DeliveryBoundRequest() in self.sync.packets()


def test_of_a_publisher_that_no_archive_has_named_nothing_is_known() -> None:
    """S6: it is asked for until one does."""
    returned = Returned({})
    assert returned.sync.layer.deadline() is None
    returned.receive_buffer.note_status(P, 2, 90.0, 20.0)
    assert returned.comes(1, 20.0) is Certainty.UNCERTAIN
    assert returned.asks(20.0)
    returned.bound({}, 20.1)
    assert returned.comes(2, 20.2) is Certainty.UNCERTAIN
    assert not returned.asks(20.2), "not with every message"
    assert returned.asks(21.0)
    returned.bound({P: 2}, 21.1)
    assert returned.comes(3, 21.2) is Certainty.LIVE
    assert returned.sync.layer.deadline() is None


def test_one_that_an_archive_names_with_nothing_was_not_heard_before() -> None:
    """S6."""
    returned = Returned({P: 0})
    returned.receive_buffer.note_status(P, 1, 90.0, 20.0)
    assert returned.comes(1, 20.0) is Certainty.LIVE
    assert returned.sync.layer.deadline() is None


@pytest.mark.parametrize(("age", "certainty"), [(5.0, Certainty.LIVE), (9.0, Certainty.UNCERTAIN)])
def test_one_that_began_after_us_was_not_heard_before(age: float, certainty: Certainty) -> None:
    """S6: by more than what it tells can have been under way."""
    returned = Returned({})
    returned.receive_buffer.note_status(P, 1, age - 0.5, 19.5)
    returned.receive_buffer.note_status(P, 1, age, 20.0)
    assert returned.comes(1, 20.0) is certainty


def test_one_whose_reports_were_delayed_may_have_begun_before_us() -> None:
    """S6: they come together, and the last one is as old as the silence behind it."""
    returned = Returned({})
    returned.receive_buffer.note_status(P, 1, 4.5, 20.0)
    returned.receive_buffer.note_status(P, 1, 5.0, 20.0)
    assert returned.comes(1, 20.0) is Certainty.UNCERTAIN


def test_with_one_order_an_archive_has_heard_all_that_was_before() -> None:
    """S6."""
    returned = Returned({}, ordered=True)
    assert returned.comes(1, 20.0) is Certainty.LIVE
