"""What a transport tells the application of its bridges, as values: `Amqp(url, on_event=…)`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class BridgeLost(msgspec.Struct, frozen=True):
    """It is being rebuilt."""

    bridge: str
    reason: str


class BridgeHealed(msgspec.Struct, frozen=True):
    bridge: str


class BridgeGone(msgspec.Struct, frozen=True):
    """It could not be rebuilt in time. Nobody tries any more."""

    bridge: str
    reason: str


BridgeEvent: TypeAlias = BridgeLost | BridgeHealed | BridgeGone
