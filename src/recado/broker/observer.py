"""The broker's port for observers of administrative changes: objects that are created, changed and deleted.

The broker notifies one `ChangeObserver`; the class itself ignores everything, and is what a broker has unless
`Broker.set_observer` attaches another one. A notification is made after the change, within the operation that
makes it, so an observer only records it: it must not call the broker, raise, or take long. Publishing,
delivering and settling messages cause no notification.

Internal addresses of direct replies, and wire taps, are not observed; lists of the HTTP API omit them, too.
"""

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import User
    from .binding import Binding
    from .channel import Channel
    from .consumer import Consumer
    from .exchange import Exchange
    from .policy import Policy
    from .queue import Queue


class Change(Enum):
    """What has happened to an object."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    OPENED = "opened"
    CLOSED = "closed"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"


class ChangeObserver:
    """The default observer. It ignores all notifications."""

    def vhost_changed(self, change: Change, vhost: str) -> None:
        """A vhost was created, its settings were changed, or it was deleted."""

    def user_changed(self, before: "User | None", after: "User | None") -> None:
        """A user was created (`before` is None), it or its permissions changed, or it was deleted (`after` is None)."""

    def policy_changed(self, change: Change, vhost: str, policy: "Policy") -> None:
        """A policy or operator policy was created, changed or deleted."""

    def parameter_changed(self, change: Change, component: str, vhost: str, name: str) -> None:
        """A parameter of a vhost was created, changed or deleted; a global one has empty `component` and `vhost`."""

    def exchange_changed(self, change: Change, vhost: str, exchange: "Exchange[Any]") -> None:
        """An exchange was created or deleted, or a policy has changed its settings."""

    def queue_changed(self, change: Change, queue: "Queue") -> None:
        """A queue was created or deleted, or a policy or an alteration has changed its settings."""

    def binding_changed(self, change: Change, vhost: str, binding: "Binding[Any]") -> None:
        """A binding was created or deleted."""

    def consumer_changed(self, change: Change, consumer: "Consumer") -> None:
        """A consumer was created or deleted."""

    def channel_changed(self, change: Change, channel: "Channel") -> None:
        """A channel was opened or closed."""

    def connection_changed(self, change: Change, connection: object) -> None:
        """A connection has entered a vhost, was closed, or an alarm blocks or unblocks its publishing.

        `connection` is the object that its channels have as `Channel.connection`.
        """

    def alarm_changed(self, before: str | None, after: str | None) -> None:
        """An alarm that blocks publishers was set, replaced or cleared; None means no alarm."""


IGNORE_CHANGES = ChangeObserver()
