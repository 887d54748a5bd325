"""Users, and their permissions in each vhost.

A permission has three patterns, for configuring, writing and reading. As in RabbitMQ, a name is allowed if
the pattern matches anywhere in it; the empty pattern allows only the empty name, which no queue or exchange
has, because the default exchange is called `amq.default` here. A topic permission restricts by routing key
what a user may write to or read from one topic exchange; `{username}` and `{vhost}` in its patterns are
replaced by the names.

Passwords are verified by the server (`recado.server.authentication`), because hashing is slow by design.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

import msgspec

from recado.amqp.errors import AccessRefusedError, NotAllowedError

from .arguments import describe_entity
from .limits import UserLimits
from .pattern import compile_name_pattern, escape_pattern

_CACHED_PATTERNS_MAX: Final = 256
_CACHED_NAMES_MAX: Final = 1_024

Right = Literal["configure", "write", "read"]
NamePredicate = Callable[[str], bool]


class Permission(msgspec.Struct, frozen=True):
    """Patterns of the names that a user may configure, write to and read from.

    Raises `ValueError` if a pattern is invalid.
    """

    configure: str = ""
    write: str = ""
    read: str = ""

    def __post_init__(self) -> None:
        for pattern in (self.configure, self.write, self.read):
            _compile_predicate(pattern)


class TopicPermission(msgspec.Struct, frozen=True):
    """Patterns of the routing keys that a user may write and read.

    Raises `ValueError` if a pattern is invalid.
    """

    write: str = ".*"
    read: str = ".*"

    def __post_init__(self) -> None:
        for pattern in (self.write, self.read):
            _compile_predicate(pattern)


class User(msgspec.Struct, frozen=True):
    name: str
    password_hash: str = ""
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permission] = {}
    """By vhost. The user may connect to these vhosts only."""
    topic_permissions: dict[tuple[str, str], TopicPermission] = {}
    """By vhost and exchange. Other exchanges are unrestricted."""
    loopback_only: bool = False
    """Whether the user may connect from localhost only, as `guest` by default."""
    limits: UserLimits = UserLimits()

    def may_enter(self, vhost: str) -> bool:
        """Whether the user may connect to a vhost."""
        return vhost in self.permissions

    def name_predicates(self, vhost: str) -> tuple[NamePredicate, NamePredicate, NamePredicate]:
        """Return which names the user may configure, write to and read from in a vhost that it may enter."""
        permission = self.permissions[vhost]
        return (
            _compile_predicate(permission.configure),
            _compile_predicate(permission.write),
            _compile_predicate(permission.read),
        )

    def allows_topic(self, right: Right, vhost: str, exchange: str, routing_key: str) -> bool:
        """Whether the user may write or read messages with a routing key on a topic exchange."""
        permission = self.topic_permissions.get((vhost, exchange))
        if permission is None:
            return True
        pattern = permission.write if right == "write" else permission.read
        return _compile_topic_predicate(pattern, self.name, vhost)(routing_key)

    def has_access_data(self, vhost: str) -> bool:
        """Whether the user has permissions or topic permissions in a vhost."""
        return vhost in self.permissions or any(name == vhost for name, _ in self.topic_permissions)

    def without_vhost(self, vhost: str) -> "User":
        """Return the user without permissions in a vhost."""
        topics = {key: each for key, each in self.topic_permissions.items() if key[0] != vhost}
        left = {name: each for name, each in self.permissions.items() if name != vhost}
        return msgspec.structs.replace(self, permissions=left, topic_permissions=topics)


class PermissionChecker:
    """Checks the permissions of one user in one vhost.

    The constructor raises `NotAllowedError` if the user has no access to the vhost.
    """

    __slots__ = ("_configure", "_read", "_user", "_vhost", "_write")

    def __init__(self, user: User, vhost: str) -> None:
        if not user.may_enter(vhost):
            raise NotAllowedError(f"access to vhost '{vhost}' refused for user '{user.name}'")
        self._user = user
        self._vhost = vhost
        self._configure, self._write, self._read = user.name_predicates(vhost)

    def check_configure(self, entity: str, name: str) -> None:
        self._check(self._configure, entity, name)

    def check_write(self, entity: str, name: str) -> None:
        self._check(self._write, entity, name)

    def check_read(self, entity: str, name: str) -> None:
        self._check(self._read, entity, name)

    def check_topic_write(self, exchange: str, routing_key: str) -> None:
        self._check_topic("write", exchange, routing_key)

    def check_topic_read(self, exchange: str, routing_key: str) -> None:
        self._check_topic("read", exchange, routing_key)

    def _check(self, allows: NamePredicate, entity: str, name: str) -> None:
        if entity == "exchange" and not name:
            name = "amq.default"
        if not allows(name):
            self._refuse(describe_entity(entity, name, self._vhost))

    def _check_topic(self, right: Right, exchange: str, routing_key: str) -> None:
        if not self._user.allows_topic(right, self._vhost, exchange, routing_key):
            described = describe_entity("exchange", exchange, self._vhost)
            self._refuse(f"topic '{routing_key}' in {described}")

    def _refuse(self, target: str) -> None:
        raise AccessRefusedError(f"access to {target} refused for user '{self._user.name}'")


# ── patterns ────────────────────────────────────────────────────────────────────────────────────


def _allow_all(name: str) -> bool:
    return True


def _allow_empty_only(name: str) -> bool:
    return not name


@lru_cache(_CACHED_PATTERNS_MAX)
def _compile_predicate(pattern: str) -> NamePredicate:
    """Return a function that tells whether a name is allowed.

    Clients use the same few names repeatedly, so results are cached for all connections. The simplest
    patterns need no regex engine.
    """
    match pattern:
        case ".*":
            return _allow_all
        case "" | "^$":
            return _allow_empty_only
        case _:
            return lru_cache(_CACHED_NAMES_MAX)(compile_name_pattern(pattern))


@lru_cache(_CACHED_PATTERNS_MAX)
def _compile_topic_predicate(pattern: str, user: str, vhost: str) -> NamePredicate:
    for placeholder, name in (("{username}", user), ("{vhost}", vhost)):
        if placeholder in pattern:
            pattern = pattern.replace(placeholder, escape_pattern(name))
    try:
        return _compile_predicate(pattern)
    except ValueError:
        # The inserted names made a valid pattern too long. Refusing all routing keys but the empty one is safe
        # and affects this user only.
        return _allow_empty_only
