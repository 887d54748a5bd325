"""The states of a cell.

    STARTING ───────► IDLE ◄─── release ─── CLAIMED ─── handler raised ──► SUSPENDED
      started           └────── claim ───────► ▲                               │
                                               └──── supervisor has decided ───┘

    every state ──► STOPPED

The dispatcher or lifecycle step that claims an idle cell is the only one that runs it (CE1). Dispatchers claim
cells under a lock, or on the loop's thread; SUSPENDED and STOPPED are set on the loop's thread only. A start
goes through CLAIMED for a moment, and ends with a release. A restart leaves a cell CLAIMED until the new
instance is ready.
"""

from __future__ import annotations

import enum


class CellState(enum.Enum):
    STARTING = "starting"  # the constructor and `pre_start` run; messages wait in the mailbox
    IDLE = "idle"  # no handler runs and no message waits
    CLAIMED = "claimed"  # a dispatcher runs the cell, or the loop restarts or stops it
    SUSPENDED = "suspended"  # a handler failed; the supervisor has not decided yet
    STOPPED = "stopped"  # messages become dead letters
