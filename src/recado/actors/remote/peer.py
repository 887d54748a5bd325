"""Another node, as this one knows it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from weakref import ReferenceType, ref

from recado.actors.address import Address
from recado.actors.supervision.signals import CellSignal

from .transport import PeerLink
from .wire.frame import FrameSigner

MAX_PAST_INCARNATIONS: Final = 64  # incarnations of a node that are refused after others have come
MAX_SENT_SIGNALS: Final = 1000  # that are remembered, so that a refusal tells us which one it was


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
        self.signer = signer  # one incarnation of ours, as long as we know it
        self.link: PeerLink | None = None
        self.connected_by_us = False  # whether we made the link
        self.incarnation = b""  # the incarnation under which it speaks
        # Earlier ones, which are not heard any more, and the link that each of them spoke on.
        self.past_incarnations: OrderedDict[bytes, ReferenceType[PeerLink] | None] = OrderedDict()
        self.has_spoken = False  # since the last look
        self.last_heard = now  # when it was last found to have spoken
        self.is_unreachable = False
        self.sent_signals: OrderedDict[int, tuple[Address, CellSignal]] = OrderedDict()

    def retire_incarnation(self) -> None:
        """Its present incarnation is an earlier one from now on."""
        self.past_incarnations[self.incarnation] = None if self.link is None else ref(self.link)
        if len(self.past_incarnations) > MAX_PAST_INCARNATIONS:
            self.past_incarnations.popitem(last=False)

    def remember_signal(self, target: Address, signal: CellSignal) -> None:
        """It is in the next frame."""
        self.sent_signals[self.signer.sequence + 1] = target, signal
        if len(self.sent_signals) > MAX_SENT_SIGNALS:
            self.sent_signals.popitem(last=False)
