"""Which batch it is: who writes it, for ever the same, and its number."""

from __future__ import annotations

from typing import NamedTuple


class Batch(NamedTuple):
    writer: str
    """Letters, digits, - and _: the pipeline, its sink, and the id of the checkpoint."""
    number: int

    @property
    def key(self) -> str:
        """A name for a folder; in the order of numbers."""
        return f"{self.writer}-{self.number:09d}"
