"""The shares that are traded, and who is responsible for which: fifteen of them, in three groups of five."""

from __future__ import annotations

from typing import Final

GROUPS: Final = ("A", "B", "C")
SYMBOLS: Final = tuple(f"{group}{number}" for group in GROUPS for number in range(1, 6))
RECEIVERS_COUNT: Final = 10


def group_of(symbol: str) -> str:
    """Whose matching engine has its book."""
    return symbol[:1]
