"""A peer: the state that this node keeps about one other node."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from weakref import ReferenceType, ref

from recado.actors.address import Address
from recado.actors.supervision.signals import CellSignal

from .transport import PeerLink
from .wire.frame import FrameSigner

MAX_PAST_INCARNATIONS: Final = 64  # of one node, whose frames are refused after it was replaced
MAX_SENT_SIGNALS: Final = 1000  # remembered to know which one a refusal is about


class Peer:
    __slots__ = (
        "connected_by_us",
        "has_spoken",
        "incarnation",
        "is_unreachable",
        "last_heard",
        "link",
        "name",
        "past_incarnations",
        "sent_signals",
        "signer",
    )

    def __init__(self, name: str, signer: FrameSigner, now: float) -> None:
        self.name = name
        self.signer = signer  # has our incarnation towards this peer
        self.link: PeerLink | None = None
        self.connected_by_us = False  # whether we opened the link
        self.incarnation = b""  # of the peer; empty before its first frame
        # Earlier incarnations and the link of each. Their frames are refused, except one-way messages on that
        # link (InboundHandler._process_from_replaced).
        self.past_incarnations: OrderedDict[bytes, ReferenceType[PeerLink] | None] = OrderedDict()
        self.has_spoken = False  # whether a frame was received since the last heartbeat
        self.last_heard = now  # time of the last heartbeat that found `has_spoken` set
        self.is_unreachable = False
        # Target and signal, by the sequence number of the frame.
        self.sent_signals: OrderedDict[int, tuple[Address, CellSignal]] = OrderedDict()

    def retire_incarnation(self) -> None:
        """Refuse frames of the present incarnation from now on, except one-way messages on its own link."""
        self.past_incarnations[self.incarnation] = None if self.link is None else ref(self.link)
        if len(self.past_incarnations) > MAX_PAST_INCARNATIONS:
            self.past_incarnations.popitem(last=False)

    def remember_signal(self, target: Address, signal: CellSignal) -> None:
        """Remember the signal that the next frame will carry."""
        self.sent_signals[self.signer.sequence + 1] = target, signal
        if len(self.sent_signals) > MAX_SENT_SIGNALS:
            self.sent_signals.popitem(last=False)
