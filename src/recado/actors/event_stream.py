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

from .actor_events import DeadLetter

if TYPE_CHECKING:
    from .ref import ActorRef

Ref: TypeAlias = "ActorRef[Any]"


class EventStream:
    def __init__(self) -> None:
        self._lock = Lock()
        self._subscribers: dict[type, dict[Ref, None]] = {}
        # Who is told of an event, by its class; begun anew when somebody subscribes.
        self._recipients: dict[type, tuple[Ref, ...]] = {}

    def subscribe(self, ref: Ref, *event_classes: type) -> None:
        """Tell it every event of these classes; `object` is all of them. It lasts until it stops."""
        with self._lock:
            for event_class in event_classes:
                self._subscribers.setdefault(event_class, {})[ref] = None
            self._recipients = {}

    def unsubscribe(self, ref: Ref, *event_classes: type) -> None:
        """From these classes, or from everything."""
        with self._lock:
            for event_class in event_classes or tuple(self._subscribers):
                subscribers = self._subscribers.get(event_class, {})
                subscribers.pop(ref, None)
                if not subscribers:
                    self._subscribers.pop(event_class, None)
            self._recipients = {}

    def publish(self, event: object) -> None:
        if isinstance(event, DeadLetter) and isinstance(event.message, DeadLetter):
            return
        recipients = self._recipients
        refs = recipients.get(type(event))
        if refs is None:
            with self._lock:
                refs = recipients[type(event)] = self._find_subscribers(type(event))
        for ref in refs:
            ref.tell(event)

    def _find_subscribers(self, event_class: type) -> tuple[Ref, ...]:
        found: dict[Ref, None] = {}
        for ancestor in event_class.__mro__:
            found.update(self._subscribers.get(ancestor, {}))
        return tuple(found)
