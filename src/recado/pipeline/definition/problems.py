"""Problems of a pipeline: where, what, and how to fix it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..errors import PipelineError
from ..options import closest_name as closest_name
from ..options import suggest_name as suggest_name

_EXCERPT_CHARACTER_COUNT: Final = 80  # a longer excerpt would hide the message


class Problem(NamedTuple):
    """One problem of a definition."""

    location: str
    """The part of the definition: `step 2 (filter)`, `sink bars`; empty if it is not about a part."""
    message: str
    hint: str = ""

    def __str__(self) -> str:
        location = f"{self.location}: " if self.location else ""
        return f"{location}{self.message}" + (f"; {self.hint}" if self.hint else "")


class InvalidPipelineError(PipelineError, ValueError):
    """A pipeline cannot run; `problems` has all its problems."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{name}: {problem}" for problem in problems))


def quote_excerpt(text: str) -> str:
    """Return a text in quotes, shortened if it is long."""
    return (
        repr(text)
        if len(text) <= _EXCERPT_CHARACTER_COUNT
        else f"{text[:_EXCERPT_CHARACTER_COUNT]!r}…"
    )
