"""The two kinds of backlog: published in runs, or message by message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """How messages are published that are to wait in a queue; arguments of the load generator."""

    name: str
    title: str
    arguments: tuple[str, ...]


# As many messages in a write as fill it: a broker may treat them as one.
RUNS = Shape("runs", "in runs", ("--confirm-window", "1000"))

# Every publisher waits for the confirm of its message before it sends the next, so that no two of
# a connection are ever read together. They are many because all of them share a sync.
SINGLES = Shape("singles", "one by one", ("--publishers", "200", "--confirm-window", "1"))
