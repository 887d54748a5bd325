"""A stash: messages that an actor cannot handle yet, put aside and put back.

    class Store(Actor[Ready | Put]):
        def started(self) -> None:
            self.stash = Stash(self, capacity=100)

        def receive(self, message: Ready | Put) -> None:
            match message:
                case Ready():
                    self.become(self.ready)
                    self.stash.put_back()
                case Put():
                    self.stash.keep()

ST1  What was put back is handled before all that waits, in the order in which it came first.
ST2  A stashed message is neither answered nor acknowledged: who asked waits on, a durable mailbox keeps it.
ST3  When the instance ends, what it had stashed goes back to the mailbox: a restart loses nothing, and after a
     stop it is dead letters with the rest.
ST4  There are never more than `capacity`. One more is a failure of the actor, StashFull.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .errors import ActorError

if TYPE_CHECKING:
    from .actor import Actor
    from .running.mailbox import Letter

CAPACITY: Final = 1_000


class StashFull(ActorError):
    pass


class Stash:
    def __init__(self, actor: Actor[Any], capacity: int = CAPACITY) -> None:
        """From `started` of the actor, or later."""
        self._cell = actor._cell
        self._capacity = capacity
        self._kept: list[Letter] = []
        actor.system.on_loop(self._cell.at_end, self.put_back)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self) -> None:
        """Put the message aside that is being handled. Nothing else should be done about it."""
        if len(self._kept) >= self._capacity:
            raise StashFull(f"{self._cell.ref} has stashed {self._capacity} messages already")
        self._kept.append(self._cell.keep())

    def put_back(self) -> None:
        """Let all of them come again, from the next message on."""
        kept, self._kept = self._kept, []
        if kept:
            self._cell.put_back(kept)
