"""What is wrong with a pipeline: where, what, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..options import closest_name as closest_name
from ..options import suggest_name as suggest_name

_EXCERPT_CHARACTER_COUNT: Final = (
    80  # characters: more of a text that is wrong would hide what is said of it
)


class Problem(NamedTuple):
    location: str
    """As a reader finds it: `step 2 (filter)`, `sink bars`."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.location}: {self.message}" + (f"; {self.hint}" if self.hint else "")


class InvalidPipelineError(ValueError):
    """A pipeline that cannot run. All of its problems are told at once."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{name}: {problem}" for problem in problems))


def quote_excerpt(text: str) -> str:
    """A text in quotes, or how it begins."""
    return (
        repr(text)
        if len(text) <= _EXCERPT_CHARACTER_COUNT
        else f"{text[:_EXCERPT_CHARACTER_COUNT]!r}…"
    )
