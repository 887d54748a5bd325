"""What is wrong with a pipeline: where, what, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple


class Problem(NamedTuple):
    place: str
    """As a reader finds it: `step 2 (filter)`, `sink bars`."""
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f"; {self.hint}" if self.hint else "")


class PipelineError(ValueError):
    """A pipeline that cannot run. All of its problems are told at once."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{name}: {problem}" for problem in problems))


def nearest(name: str, known: Iterable[str], otherwise: str = "there are") -> str:
    """`did you mean …?`, or all that there is."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"did you mean {by_lower[close[0]]}?"
    return f"{otherwise} {', '.join(by_lower.values())}" if by_lower else ""
