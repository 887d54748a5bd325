"""What is wrong with a pipeline: where, what, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..options import closest as closest
from ..options import nearest as nearest

_SHOWN: Final = 80  # characters: more of a text that is wrong would hide what is said of it


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


def shown(text: str) -> str:
    """A text in quotes, or how it begins."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
