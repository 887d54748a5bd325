"""The newest configuration that a node knows for each key.

It serves two purposes. Commands are sent to the owner that it names; there it is a hint, and may be outdated. And it is
the memory of which epochs are over:

ORM1  The epoch of a key never decreases.
ORM2  A node that drops what it has stored for a configuration knows a successor of it. So it never becomes a member
      of that configuration a second time, without what it has stored and promised: `is_superseded` tells.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from .configuration import Arc, Configuration
from .identifier import TopicKey


class RangeMap:
    """A map from keys to configurations, as pieces that do not intersect, sorted by their first key."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._pieces: list[tuple[Arc, Configuration]] = []
        self.version = 0
        """Grows with each change."""

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[tuple[Arc, Configuration]]:
        return iter(self._pieces)

    def find(self, key: int) -> Configuration | None:
        """Return the newest known configuration for a key."""
        at = bisect_right(self._firsts, key) - 1
        if at >= 0:
            arc, configuration = self._pieces[at]
            if key <= arc.last:
                return configuration
        return None

    def overlapping(self, arc: Arc) -> list[Configuration]:
        """Return the configurations that are known for keys of an arc, in the order of the keys."""
        return [configuration for _, configuration in self.pieces(arc)]

    def pieces(self, arc: Arc) -> list[tuple[Arc, Configuration]]:
        """Return the parts of an arc for which a configuration is known; the parts at the ends may reach beyond it."""
        return [each for each in self._between(arc) if each[0].intersects(arc)]

    def is_superseded(self, configuration: Configuration) -> bool:
        """Whether a later epoch is known for any key of the configuration."""
        return any(each.epoch > configuration.epoch for each in self.overlapping(configuration.arc))

    def learn(self, configuration: Configuration) -> bool:
        """Enter a configuration where its epoch is higher than what is known; return whether anything changed."""
        arc = configuration.arc
        start = max(0, bisect_right(self._firsts, arc.first) - 1)
        stop = bisect_right(self._firsts, arc.last)
        new: list[tuple[Arc, Configuration]] = []
        changed = False
        uncovered = int(arc.first)
        for piece, known in self._pieces[start:stop]:
            if not piece.intersects(arc):
                new.append((piece, known))
                continue
            if piece.first < arc.first:
                new.append((Arc(piece.first, TopicKey(arc.first - 1)), known))
            shared = Arc(max(piece.first, arc.first), min(piece.last, arc.last))
            if uncovered < shared.first:
                new.append((Arc(TopicKey(uncovered), TopicKey(shared.first - 1)), configuration))
                changed = True
            if known.epoch < configuration.epoch:
                new.append((shared, configuration))
                changed = True
            else:
                new.append((shared, known))
            if piece.last > arc.last:
                new.append((Arc(TopicKey(arc.last + 1), piece.last), known))
            uncovered = shared.last + 1
        if uncovered <= arc.last:
            new.append((Arc(TopicKey(uncovered), arc.last), configuration))
            changed = True
        if changed:
            joined = _join(new)
            self._pieces[start:stop] = joined
            self._firsts[start:stop] = [int(piece.first) for piece, _ in joined]
            self.version += 1
        return changed

    def _between(self, arc: Arc) -> list[tuple[Arc, Configuration]]:
        start = max(0, bisect_right(self._firsts, arc.first) - 1)
        return self._pieces[start : bisect_right(self._firsts, arc.last)]


def _join(pieces: list[tuple[Arc, Configuration]]) -> list[tuple[Arc, Configuration]]:
    """Join adjacent pieces with the same configuration."""
    joined: list[tuple[Arc, Configuration]] = []
    for arc, configuration in pieces:
        if joined:
            before, same = joined[-1]
            if same is configuration and before.is_followed_by(arc):
                joined[-1] = (Arc(before.first, arc.last), same)
                continue
        joined.append((arc, configuration))
    return joined
