"""FIFO between the promise to a new view and that view: no message passes, whatever happens meanwhile (MB3)."""

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch, PacketRoute
from recado.feeds.layer import (
    BatchReleased,
    MemberContext,
    PacketReceived,
    UpEvent,
    ViewAgreed,
    ViewChangeAbandoned,
    ViewInstalled,
)
from recado.feeds.layers.fifo import FifoLayer
from recado.feeds.layers.receive_buffer import ReceiveBuffer
from recado.feeds.options import FeedOptions
from recado.feeds.packet import Data, PublisherStatus
from recado.feeds.vector import Vector
from recado.feeds.views import MemberId, Role, View, ViewEntry, ViewId, ViewRecord

ME, OTHER, ARCHIVE = (MemberId(name, name[0].encode() * 16) for name in ("me", "other", "archive"))
NEW, OLD = b"n" * 16, b"x" * 16
SUSPECT_S = 2.0


class Scene:
    """A subscriber without recovery. It follows the publisher NEW; an archive that has joined knows OLD, which
    it must not deliver. So the view with the archive is pending until OLD is heard, or
    `failure_timeout` has passed."""

    def __init__(self) -> None:
        options = FeedOptions(has_total_order=False, failure_timeout=SUSPECT_S)
        context = MemberContext(ME, Role.SUBSCRIBER, options, frozenset({"MEMBERSHIP"}))
        self.receive_buffer = ReceiveBuffer(10_000)
        self.fifo = FifoLayer(context, self.receive_buffer, None)
        self.risen: list[UpEvent] = []
        self.fifo.link(lambda event, now: self.risen.append(event), lambda event, now: None)
        self.fifo.start(0.0)
        self.accept(1, {})
        self.hear(PublisherStatus(NEW, 0, 0), 0.1)
        self.hear(data(1), 0.1)
        self.accept(2, {NEW: 1, OLD: 9}, ARCHIVE)
        assert self.passed() == ["view 1", 1]

    def accept(self, number: int, cut: dict[bytes, int], *more: MemberId) -> None:
        seats = tuple(ViewEntry(member, Role.SUBSCRIBER) for member in (ME, OTHER, *more))
        view = View(ViewId(number, bytes(16)), seats)
        self.fifo.context.agreed_view = view
        self.fifo.up(ViewAgreed(ViewRecord(view, Vector(cut), ())), 0.2)

    def hear(self, packet: Data | PublisherStatus, now: float) -> None:
        if isinstance(packet, PublisherStatus):  # as NAK does, below FIFO
            last, age_s = packet.last_sequence, packet.age_ms / 1000
            self.receive_buffer.note_status(packet.publisher, last, age_s, now)
        self.fifo.up(PacketReceived(PacketRoute.BROADCAST, OTHER, packet), now)

    def passed(self) -> list[str | int]:
        """Sequences of NEW, and views."""
        passed: list[str | int] = []
        for event in self.risen:
            match event:
                case BatchReleased(MessageBatch(publisher, first)):
                    assert publisher == NEW
                    passed.append(first)
                case ViewInstalled(record):
                    passed.append(f"view {record.view.id.number}")
                case _:
                    pass
        return passed


def data(sequence: int) -> Data:
    return Data(NEW, sequence, Block.build([b"x"]))


@pytest.fixture(params=["silent", "heard"])
def promised(request: pytest.FixtureRequest) -> Scene:
    """It has said to have NEW up to 1; then 2 comes, and where to begin with OLD is decided."""
    scene = Scene()
    scene.receive_buffer.freeze()
    scene.hear(data(2), 0.3)
    if request.param == "silent":
        scene.fifo.tick(0.2 + SUSPECT_S)
    else:
        scene.hear(PublisherStatus(OLD, 9, 60_000), 0.3)
    assert not scene.receive_buffer.unsynced
    return scene


def test_nothing_passes_when_a_pending_view_is_reached_after_the_promise(promised: Scene) -> None:
    assert promised.passed() == ["view 1", 1]


def test_what_came_after_the_promise_is_behind_the_cut(promised: Scene) -> None:
    promised.accept(3, {NEW: 1, OLD: 9}, ARCHIVE)
    assert promised.passed() == ["view 1", 1, "view 3", 2]


def test_when_the_round_is_given_up_the_pending_view_begins(promised: Scene) -> None:
    promised.fifo.up(ViewChangeAbandoned(), 3.0)
    assert promised.passed() == ["view 1", 1, "view 2", 2]
