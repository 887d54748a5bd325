"""A stash: messages that an actor cannot handle yet, set aside and requeued later.

    class Store(Actor[Ready | Put]):
        def pre_start(self) -> None:
            self.pending = Stash(self, capacity=100)

        def receive(self, message: Ready | Put) -> None:
            match message:
                case Ready():
                    self.become(self.ready)
                    self.pending.unstash_all()
                case Put():
                    self.pending.stash()

AH1  Unstashed messages are handled before all others in the mailbox, in the order in which they arrived.
AH2  A stashed message is neither answered nor acknowledged: its asker keeps waiting, a durable mailbox keeps
     it.
AH3  When the instance ends, its stashed messages are requeued: a restart loses none, and after a stop they are
     dead letters like the rest of the mailbox.
AH4  There are never more than `capacity` stashed messages. One more fails the actor with StashFullError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .errors import ActorError

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime.mailbox import MessageEnvelope

STASHED_MESSAGES_MAX: Final = 1_000


class StashFullError(ActorError):
    """An actor has stashed more messages than the capacity of its stash."""


class Stash:
    def __init__(self, actor: Actor[Any], capacity: int = STASHED_MESSAGES_MAX) -> None:
        """Create a stash in `pre_start` of the actor, or later."""
        self._cell = actor._cell
        self._capacity = capacity
        self._stashed: list[MessageEnvelope] = []
        actor.system._call_on_loop(self._cell.on_instance_end, self.unstash_all)

    def __len__(self) -> int:
        return len(self._stashed)

    def stash(self) -> None:
        """Set the current message aside. The handler should return after this, without a reply.

        Raises StashFullError.
        """
        if len(self._stashed) >= self._capacity:
            raise StashFullError(
                f"{self._cell.ref} has already stashed {self._capacity} messages, its capacity"
            )
        self._stashed.append(self._cell.take_envelope())

    def unstash_all(self) -> None:
        """Requeue all stashed messages before the rest of the mailbox (AH1)."""
        envelopes, self._stashed = self._stashed, []
        if envelopes:
            self._cell.requeue(envelopes)
