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
    from .runtime.mailbox import MessageEnvelope

STASHED_MESSAGES_MAX: Final = 1_000


class StashFullError(ActorError):
    pass


class Stash:
    def __init__(self, actor: Actor[Any], capacity: int = STASHED_MESSAGES_MAX) -> None:
        """From `started` of the actor, or later."""
        self._cell = actor._cell
        self._capacity = capacity
        self._stashed: list[MessageEnvelope] = []
        actor.system._call_on_loop(self._cell.on_instance_end, self.unstash_all)

    def __len__(self) -> int:
        return len(self._stashed)

    def stash(self) -> None:
        """Put the message aside that is being handled. Nothing else should be done about it."""
        if len(self._stashed) >= self._capacity:
            raise StashFullError(f"{self._cell.ref} has stashed {self._capacity} messages already")
        self._stashed.append(self._cell.take_envelope())

    def unstash_all(self) -> None:
        """Let all of them come again, from the next message on."""
        envelopes, self._stashed = self._stashed, []
        if envelopes:
            self._cell.requeue(envelopes)
