"""How far a node trusts its own observations (the local health multiplier of Lifeguard).

The score is 0 for a healthy node. It grows when answers are missing that healthy helpers owe, when the node itself is
suspected, and after a stall. A node with a higher score probes less often and waits longer before it suspects a peer.
"""

from __future__ import annotations

from typing import Final

SCORE_POINTS_MAX: Final = 8


class LocalHealth:
    def __init__(self) -> None:
        self.score = 0

    @property
    def multiplier(self) -> int:
        """The factor of this node's timeouts."""
        return 1 + self.score

    def worsen(self, by: int = 1) -> None:
        self.score = min(self.score + by, SCORE_POINTS_MAX)

    def improve(self) -> None:
        self.score = max(self.score - 1, 0)
