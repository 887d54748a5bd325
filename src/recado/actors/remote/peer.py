"""Another node, as this one knows it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final
from weakref import ReferenceType, ref

from recado.actors.address import Address
from recado.actors.failing.signals import CellSignal

from .sealed.frame import Sealer
from .transport import Link

PAST_MOST: Final = 64  # incarnations of a node that are refused after others have come
SIGNALS_MOST: Final = 1000  # that are remembered, so that a refusal tells us which one it was


class Peer:
    __slots__ = (
        "heard",
        "life",
        "link",
        "made",
        "name",
        "past",
        "sealer",
        "signals",
        "spoke",
        "unreachable",
    )

    def __init__(self, name: str, sealer: Sealer, now: float) -> None:
        self.name = name
        self.sealer = sealer  # one incarnation of ours, as long as we know it
        self.link: Link | None = None
        self.made = False  # whether we made the link
        self.life = b""  # the incarnation under which it speaks
        # Earlier ones, which are not heard any more, and the link that each of them spoke on.
        self.past: OrderedDict[bytes, ReferenceType[Link] | None] = OrderedDict()
        self.spoke = False  # since the last look
        self.heard = now  # when it was last found to have spoken
        self.unreachable = False
        self.signals: OrderedDict[int, tuple[Address, CellSignal]] = OrderedDict()

    def retire(self) -> None:
        """Its present incarnation is an earlier one from now on."""
        self.past[self.life] = None if self.link is None else ref(self.link)
        if len(self.past) > PAST_MOST:
            self.past.popitem(last=False)

    def note_signal(self, target: Address, signal: CellSignal) -> None:
        """It is in the next frame."""
        self.signals[self.sealer.sequence + 1] = target, signal
        if len(self.signals) > SIGNALS_MOST:
            self.signals.popitem(last=False)
