"""Limits of vhosts and users, set by an operator, and the counts they apply to.

A limit applies to new connections, channels, queues, bindings and consumers; existing ones stay. Codes and
texts are RabbitMQ's; it has no limits of bindings and consumers, which are refused as queues are.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from recado.amqp.errors import NotAllowedError

if TYPE_CHECKING:
    from .access import User


class VhostLimits(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    """The limits of one vhost; None: unlimited. The encoded names are RabbitMQ's or like them."""

    max_connections: int | None = None
    max_queues: int | None = None
    max_bindings: int | None = None
    max_consumers: int | None = None


class UserLimits(msgspec.Struct, frozen=True, omit_defaults=True, rename="kebab"):
    """The limits of one user in all vhosts together; None: unlimited."""

    max_connections: int | None = None
    max_channels: int | None = None


class Usage:
    """Open connections by vhost and by user, open channels by user, and totals since the start."""

    def __init__(self, users: "Mapping[str, User]") -> None:
        """`users` is the live mapping by name, so that a changed limit applies to the next channel opened."""
        self._users = users
        self._connections_of_vhost: Counter[str] = Counter()
        self._connections_of_user: Counter[str] = Counter()
        self._channels_of_user: Counter[str] = Counter()
        # Totals since the start of the process, for statistics.
        self.connections_created = self.connections_closed = 0
        self.channels_created = self.channels_closed = 0
        self.queues_declared = self.queues_created = self.queues_deleted = 0

    def check_connection(self, user: str, vhost: str, limits: VhostLimits) -> None:
        """Raise `NotAllowedError` if one more connection of the user to the vhost would exceed a limit."""
        limit = limits.max_connections
        if limit is not None and self._connections_of_vhost[vhost] >= limit:
            raise NotAllowedError(
                f"access to vhost '{vhost}' refused for user '{user}':"
                f" connection limit ({limit}) is reached"
            )
        limit = self._user_limits(user).max_connections
        if limit is not None and self._connections_of_user[user] >= limit:
            raise NotAllowedError(
                f"connection refused for user '{user}': user connection limit ({limit}) is reached"
            )

    def count_connections(self, user: str | None = None) -> int:
        """Return the number of open connections, of one user or of all."""
        if user is not None:
            return self._connections_of_user.get(user, 0)
        return self.connections_created - self.connections_closed

    def count_channels(self, user: str | None = None) -> int:
        """Return the number of open channels, of one user or of all."""
        if user is not None:
            return self._channels_of_user.get(user, 0)
        return self.channels_created - self.channels_closed

    def add_connection(self, user: str, vhost: str) -> None:
        self.connections_created += 1
        self._connections_of_vhost[vhost] += 1
        self._connections_of_user[user] += 1

    def remove_connection(self, user: str, vhost: str) -> None:
        self.connections_closed += 1
        _decrement(self._connections_of_vhost, vhost)
        _decrement(self._connections_of_user, user)

    def add_channel(self, user: str) -> None:
        """Count a new channel. Raises `NotAllowedError` if the user has reached its channel limit."""
        limit = self._user_limits(user).max_channels
        if limit is not None and self._channels_of_user[user] >= limit:
            raise NotAllowedError(
                f"number of channels opened for user '{user}' has reached the maximum allowed user"
                f" limit of ({limit})"
            )
        self.channels_created += 1
        self._channels_of_user[user] += 1

    def remove_channel(self, user: str) -> None:
        self.channels_closed += 1
        _decrement(self._channels_of_user, user)

    def _user_limits(self, name: str) -> UserLimits:
        user = self._users.get(name)
        return UserLimits() if user is None else user.limits


def _decrement(counts: Counter[str], name: str) -> None:
    """Decrement a count, and remove the name if it reaches 0."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
