"""Users whose permissions are the scopes of an OAuth 2 token, in the language of RabbitMQ's plugin.

    read:*/*                      read from everything in all vhosts
    write:orders/invoice-*        write to what begins with invoice- in the vhost orders
    write:%2F/amq.topic/eu.*      … and to the topic exchange amq.topic with keys that begin with eu.
    tag:administrator

A part is a pattern in which `*` matches any text. Other characters can be percent-encoded and `+` is a space, as
in the query of a URL; `*`, `/`, `%` and `+` must be. On a topic exchange a user may write and read only with a
scope of three parts. Scopes that cannot be read are ignored, because tokens have scopes for other programs too.
"""

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Final, cast, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from .access import NamePredicate, Right, User

_CACHED_NAMES_MAX: Final = 1_024
_CACHED_SCOPES_MAX: Final = 4_096
_INVALID_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_TAG_PREFIX: Final = "tag:"


class WildcardPattern(msgspec.Struct, frozen=True):
    """A pattern as the texts between its wildcards, decoded: `a*b` has two, `a` has one."""

    texts: tuple[bytes, ...]

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        data, (first, *middle) = name.encode(), self.texts
        if not middle:
            return data == first
        last = middle.pop()
        end = len(data) - len(last)
        position = len(first)
        if end < position or not data.startswith(first) or not data.endswith(last):
            return False
        for text in middle:  # the first place of each leaves the most room for the others
            found = data.find(text, position, end)
            if found < 0:
                return False
            position = found + len(text)
        return True


class Scope(msgspec.Struct, frozen=True):
    """A right to the objects whose vhost and name match."""

    right: Right
    vhost: WildcardPattern
    name: WildcardPattern
    routing_key: WildcardPattern | None = None
    """Of messages on a topic exchange; without it, the scope is of no use there."""


class TokenUser(User, frozen=True):
    """A user by virtue of a token. The broker does not know it by its name, and forgets it with the connection."""

    scopes: tuple[Scope, ...] = ()
    vhosts: tuple[WildcardPattern, ...] = ()
    """Those of the scopes, each once."""
    expires_at: float = 0.0
    """In seconds since 1970."""

    def may_enter(self, vhost: str) -> bool:
        return _match_any(self.vhosts, vhost)

    def name_predicates(self, vhost: str) -> tuple[NamePredicate, NamePredicate, NamePredicate]:
        scopes = [scope for scope in self.scopes if scope.vhost.matches(vhost)]
        configure, write, read = (
            lru_cache(_CACHED_NAMES_MAX)(
                partial(_match_any, [each.name for each in scopes if each.right == right])
            )
            for right in get_args(Right)
        )
        return configure, write, read

    def allows_topic(self, right: Right, vhost: str, exchange: str, routing_key: str) -> bool:
        return any(
            scope.right == right
            and scope.routing_key is not None
            and scope.routing_key.matches(routing_key)
            and scope.name.matches(exchange)
            and scope.vhost.matches(vhost)
            for scope in self.scopes
        )


def _match_any(patterns: Iterable[WildcardPattern], name: str) -> bool:
    return any(pattern.matches(name) for pattern in patterns)


def parse_pattern(text: str) -> WildcardPattern | None:
    """Return a pattern, None if its encoding is invalid."""
    if _INVALID_ESCAPE.search(text):
        return None
    return WildcardPattern(
        tuple(unquote_to_bytes(part.replace("+", " ")) for part in text.split("*"))
    )


@lru_cache(_CACHED_SCOPES_MAX)
def parse_scope(text: str) -> Scope | None:
    """Parse a scope, given without the prefix of the resource server. None if it does not concern a broker."""
    right, _, rest = text.partition(":")
    parts = rest.split("/")
    patterns = [pattern for pattern in map(parse_pattern, parts) if pattern is not None]
    if right not in get_args(Right) or len(patterns) != len(parts) or len(parts) not in (2, 3):
        return None
    return Scope(cast(Right, right), *patterns)


def make_token_user(name: str, scopes: Iterable[str], expires_at: float) -> TokenUser:
    """Return a user with these scopes, which are given without the prefix of the resource server."""
    texts = sorted(set(scopes))
    parsed = tuple(scope for scope in map(parse_scope, texts) if scope is not None)
    return TokenUser(
        name,
        tags=tuple(
            text.removeprefix(_TAG_PREFIX) for text in texts if text.startswith(_TAG_PREFIX)
        ),
        scopes=parsed,
        vhosts=tuple({scope.vhost: None for scope in parsed}),
        expires_at=expires_at,
    )
