"""The states of an actor, which it goes through once and in this order. A restart leaves it STARTED."""

from __future__ import annotations

import enum


class CellState(enum.Enum):
    STARTING = "new"  # its constructor and `started` run; what is told already waits
    STARTED = "started"
    STOPPED = "stopped"  # what is told is a dead letter
