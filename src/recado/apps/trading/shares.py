"""The traded shares: fifteen in three groups of five, with a matching engine for each group."""

from __future__ import annotations

from typing import Final

GROUPS: Final = ("A", "B", "C")
SYMBOLS: Final = tuple(f"{group}{number}" for group in GROUPS for number in range(1, 6))
RECEIVERS_COUNT: Final = 10


def group_of(symbol: str) -> str:
    """Return the group of a share, whose matching engine has its book."""
    return symbol[:1]
