"""Another node, as this one knows it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from recado.actors.address import Address
from recado.actors.failing.signals import CellSignal

from .sealed.frame import Sealer
from .transport import Link

SIGNALS_MOST: Final = 1000  # that are remembered, so that a refusal tells us which one it was


class Peer:
    __slots__ = (
        "heard",
        "life",
        "link",
        "made",
        "name",
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
        self.spoke = False  # since the last look
        self.heard = now  # when it was last found to have spoken
        self.unreachable = False
        self.signals: OrderedDict[int, tuple[Address, CellSignal]] = OrderedDict()

    def note_signal(self, target: Address, signal: CellSignal) -> None:
        """It is in the next frame."""
        self.signals[self.sealer.sequence + 1] = target, signal
        if len(self.signals) > SIGNALS_MOST:
            self.signals.popitem(last=False)
