"""Sessions of the web console: the users that have signed in, one session for each browser.

A browser gets a random id in a cookie that scripts cannot read (`HttpOnly`) and other sites cannot send
(`SameSite=Strict`). A changing request also needs the token of the session in the header `X-CSRF-Token`, which
only the pages of the console know. Sessions are in memory only, so a restart of the node ends them.

CS1  An id is never accepted unless this object has made it, and a login always makes a new one (no fixation).
CS2  At most `SESSIONS_MAX_COUNT` sessions exist, and `USER_SESSIONS_MAX_COUNT` of one user: the oldest is closed.
CS3  A session ends after `SESSION_AGE_MAX_S`, and with the password, the user or the token that opened it; a token
     may be renewed at the provider. Refresh tokens are here only.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

from recado.broker.access import User
from recado.broker.scopes import TokenUser

SESSION_AGE_MAX_S: Final = 24 * 3_600.0  # so that a user signs in once a day
SESSIONS_MAX_COUNT: Final = 1_000
USER_SESSIONS_MAX_COUNT: Final = 20
ID_BYTES: Final = 32


class TokenRenewal(msgspec.Struct):
    """How the token of a session is renewed."""

    refresh_token: str
    due_ms: float
    """When a request of the session begins to renew it."""
    task: asyncio.Task[None] | None = None


class ConsoleSession(msgspec.Struct):
    """One signed-in browser."""

    user: User
    """As it was at the last request. Another password ends the session."""
    csrf_token: str
    opened_at: float
    renewal: TokenRenewal | None = None
    """Of a user that has signed in at an identity provider, if it has sent a refresh token."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether the token of the user has expired; users with a password have none."""
        return isinstance(self.user, TokenUser) and self.user.expires_at * 1_000 <= now_ms

    def accepts_token(self, token: str) -> bool:
        """Whether a request with this CSRF token comes from a page of the console."""
        return hmac.compare_digest(self.csrf_token.encode(), token.encode())


class SessionTable:
    """The open sessions, by a hash of their ids: a copy of the memory does not reveal ids."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, ConsoleSession] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, user: User, now: float) -> tuple[str, ConsoleSession]:
        """Open a session; return its id (CS1), which only the browser stores."""
        self._remove_expired(now)
        of_user = [key for key, each in self._sessions.items() if each.user.name == user.name]
        for key in of_user[: max(0, len(of_user) - USER_SESSIONS_MAX_COUNT + 1)]:
            del self._sessions[key]
        while len(self._sessions) >= SESSIONS_MAX_COUNT:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_urlsafe(ID_BYTES)
        session = ConsoleSession(user, secrets.token_urlsafe(ID_BYTES), now)
        self._sessions[_hash(session_id)] = session
        return session_id, session

    def find(self, session_id: str, now: float) -> ConsoleSession | None:
        """Return the session with this id, None if there is none or it has expired (CS3)."""
        session = self._sessions.get(_hash(session_id))
        if session is not None and now - session.opened_at >= SESSION_AGE_MAX_S:
            self.close(session_id)
            return None
        return session

    def close(self, session_id: str) -> None:
        """End a session, if it exists."""
        self._sessions.pop(_hash(session_id), None)

    def _remove_expired(self, now: float) -> None:
        for key, session in list(self._sessions.items()):
            if now - session.opened_at < SESSION_AGE_MAX_S:
                return
            del self._sessions[key]


def _hash(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode(errors="replace")).digest()
