"""The event stream of a system: delivers published events to the actors that have subscribed to their class.

    system.events.subscribe(self.ref, DeadLetter, Restarted)
    system.events.publish(PriceChanged("A1", 10))

EV1  An event is delivered once to each subscriber of its class, or of a base class of it.
EV2  Subscribers get the events of one publisher in the order in which they were published.
EV3  The system unsubscribes actors that have stopped, or could not be started.
EV4  A DeadLetter event that is itself undeliverable is not published as another DeadLetter: that would be an
     endless loop.

The system publishes its events about actors here, too (actor_events.py). All methods may be called from any
thread.
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
        # A cache by the class of the event. It is replaced when the subscriptions change.
        self._recipients: dict[type, tuple[Ref, ...]] = {}

    def subscribe(self, ref: Ref, *event_classes: type) -> None:
        """Tell an actor every event of these classes until it stops; `object` means all events."""
        with self._lock:
            for event_class in event_classes:
                self._subscribers.setdefault(event_class, {})[ref] = None
            self._recipients = {}

    def unsubscribe(self, ref: Ref, *event_classes: type) -> None:
        """Unsubscribe an actor from these classes, or from all."""
        with self._lock:
            for event_class in event_classes or tuple(self._subscribers):
                subscribers = self._subscribers.get(event_class, {})
                subscribers.pop(ref, None)
                if not subscribers:
                    self._subscribers.pop(event_class, None)
            self._recipients = {}

    def publish(self, event: object) -> None:
        """Tell an event to all subscribers of its class."""
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
