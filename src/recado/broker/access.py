"""Who may do what: users, and their permissions in each virtual host.

A permission is three patterns, for configuring, writing and reading. A name is allowed if the
pattern finds something in it, as with RabbitMQ, and the empty pattern allows nothing. The default
exchange is named `amq.default` here. A topic permission narrows what a user may write to or read
from one topic exchange, by routing key; `{username}` and `{vhost}` in it stand for their names.

How a password is verified is the server's affair, since that takes time on purpose.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from recado.amqp.errors import AccessRefused, NotAllowed

from .arguments import describe
from .limits import UserLimits
from .pattern import name_finder, quote_pattern

_PATTERNS_REMEMBERED: Final = 256
_NAMES_REMEMBERED: Final = 1_024

_Predicate = Callable[[str], bool]


class Permission(msgspec.Struct, frozen=True):
    """Patterns of the names that a user may use. A bad one is a `ValueError`."""

    configure: str = ""
    write: str = ""
    read: str = ""

    def __post_init__(self) -> None:
        for pattern in (self.configure, self.write, self.read):
            _predicate(pattern)


class TopicPermission(msgspec.Struct, frozen=True):
    """Patterns of the routing keys that a user may use. A bad one is a `ValueError`."""

    write: str = ".*"
    read: str = ".*"

    def __post_init__(self) -> None:
        for pattern in (self.write, self.read):
            _predicate(pattern)


class User(msgspec.Struct, frozen=True):
    name: str
    password_hash: str = ""
    tags: tuple[str, ...] = ()
    permissions: dict[str, Permission] = {}
    """By vhost: a user may connect to those that are named here."""
    topic_permissions: dict[tuple[str, str], TopicPermission] = {}
    """By vhost and exchange. Exchanges that are not named are not narrowed."""
    loopback_only: bool = False
    """Whether the user may connect from this machine alone, as `guest` does by default."""
    limits: UserLimits = UserLimits()


class Access:
    """What one user may do in one vhost; a vhost that is closed to the user is `NotAllowed`."""

    __slots__ = ("_configure", "_read", "_user", "_vhost", "_write")

    def __init__(self, user: User, vhost: str) -> None:
        permission = user.permissions.get(vhost)
        if permission is None:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")
        self._user = user
        self._vhost = vhost
        self._configure = _predicate(permission.configure)
        self._write = _predicate(permission.write)
        self._read = _predicate(permission.read)

    def check_configure(self, kind: str, name: str) -> None:
        self._check(self._configure, kind, name)

    def check_write(self, kind: str, name: str) -> None:
        self._check(self._write, kind, name)

    def check_read(self, kind: str, name: str) -> None:
        self._check(self._read, kind, name)

    def check_topic_write(self, exchange: str, routing_key: str) -> None:
        narrowed = self._user.topic_permissions.get((self._vhost, exchange))
        if narrowed is not None:
            self._check_topic(narrowed.write, exchange, routing_key)

    def check_topic_read(self, exchange: str, routing_key: str) -> None:
        narrowed = self._user.topic_permissions.get((self._vhost, exchange))
        if narrowed is not None:
            self._check_topic(narrowed.read, exchange, routing_key)

    def _check(self, allows: _Predicate, kind: str, name: str) -> None:
        if kind == "exchange" and not name:
            name = "amq.default"
        if not allows(name):
            self._refuse(describe(kind, name, self._vhost))

    def _check_topic(self, pattern: str, exchange: str, routing_key: str) -> None:
        if not _topic_predicate(pattern, self._user.name, self._vhost)(routing_key):
            where = describe("exchange", exchange, self._vhost)
            self._refuse(f"topic '{routing_key}' in {where}")

    def _refuse(self, what: str) -> None:
        raise AccessRefused(f"access to {what} refused for user '{self._user.name}'")


# ── patterns ────────────────────────────────────────────────────────────────────────────────────


def _everything(name: str) -> bool:
    return True


def _nothing(name: str) -> bool:
    return not name


@lru_cache(_PATTERNS_REMEMBERED)
def _predicate(pattern: str) -> _Predicate:
    """Answers whether a name is allowed. Clients ask for the same few names again and again, so
    answers are remembered, for all connections alike; the plainest patterns need no engine.
    """
    match pattern:
        case ".*":
            return _everything
        case "" | "^$":
            return _nothing
        case _:
            return lru_cache(_NAMES_REMEMBERED)(name_finder(pattern))


@lru_cache(_PATTERNS_REMEMBERED)
def _topic_predicate(pattern: str, user: str, vhost: str) -> _Predicate:
    for placeholder, name in (("{username}", user), ("{vhost}", vhost)):
        if placeholder in pattern:
            pattern = pattern.replace(placeholder, quote_pattern(name))
    try:
        return _predicate(pattern)
    except ValueError:
        # The names made a good pattern too long. To refuse is safe, and concerns this user only.
        return _nothing
