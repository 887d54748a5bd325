"""Secrets of sessions, and one-time links for a second device.

The database has only the digest of a secret, so a copy of it signs nobody in.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

from .messages import ChatUser

SECRET_BYTES: Final = 32
SESSION_S: Final = 30 * 24 * 3600
LINK_S: Final = 300.0
LINKS_MAX_COUNT: Final = 10_000


def make_session() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def session_digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class _Link(NamedTuple):
    user: ChatUser
    expires_s: float


class DeviceLinks:
    """Links that sign another device in as the same user: each works once, for five minutes."""

    def __init__(self) -> None:
        self._links: dict[bytes, _Link] = {}

    def make(self, user: ChatUser, now_s: float) -> str:
        """Return the secret of a new link."""
        self._links = {
            digest: link for digest, link in self._links.items() if link.expires_s > now_s
        }
        while len(self._links) >= LINKS_MAX_COUNT:
            del self._links[next(iter(self._links))]
        secret = make_session()
        self._links[session_digest(secret)] = _Link(user, now_s + LINK_S)
        return secret

    def take(self, secret: str, now_s: float) -> ChatUser | None:
        """Return the user of a link and remove it."""
        link = self._links.pop(session_digest(secret), None)
        return link.user if link is not None and link.expires_s > now_s else None
