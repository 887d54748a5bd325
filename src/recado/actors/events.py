"""The event stream: who is interested in a class of events is told each of them.

    system.events.subscribe(self.ref, DeadLetter, Restarted)
    system.events.publish(PriceChanged("A1", 10))

EV1  An event is told once to each subscriber of its class, or of a class that it is derived from.
EV2  Subscribers get the events of one publisher in the order in which they were published.
EV3  Who has stopped, or could not be started, is subscribed to nothing: its system sees to that.
EV4  A dead letter about a dead letter is not published: it would be the next one's cause.

What happened to actors (occurrences.py) is published here too. All calls may come from any thread.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from .occurrences import DeadLetter

if TYPE_CHECKING:
    from .ref import ActorRef

Ref: TypeAlias = "ActorRef[Any]"


class EventStream:
    def __init__(self) -> None:
        self._lock = Lock()
        self._subscribers: dict[type, dict[Ref, None]] = {}
        # Who is told of an event, by its class; begun anew when somebody subscribes.
        self._told: dict[type, tuple[Ref, ...]] = {}

    def subscribe(self, ref: Ref, *kinds: type) -> None:
        """Tell it every event of these classes; `object` is all of them. It lasts until it stops."""
        with self._lock:
            for kind in kinds:
                self._subscribers.setdefault(kind, {})[ref] = None
            self._told = {}

    def unsubscribe(self, ref: Ref, *kinds: type) -> None:
        """From these classes, or from everything."""
        with self._lock:
            for kind in kinds or tuple(self._subscribers):
                subscribers = self._subscribers.get(kind, {})
                subscribers.pop(ref, None)
                if not subscribers:
                    self._subscribers.pop(kind, None)
            self._told = {}

    def publish(self, event: object) -> None:
        if isinstance(event, DeadLetter) and isinstance(event.message, DeadLetter):
            return
        told = self._told
        refs = told.get(type(event))
        if refs is None:
            with self._lock:
                refs = told[type(event)] = self._interested(type(event))
        for ref in refs:
            ref.tell(event)

    def _interested(self, kind: type) -> tuple[Ref, ...]:
        found: dict[Ref, None] = {}
        for ancestor in kind.__mro__:
            found.update(self._subscribers.get(ancestor, {}))
        return tuple(found)
