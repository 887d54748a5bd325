"""Sessions of users that sign in at an identity provider, and the renewal of their tokens.

A session is as long as its access token, which often lasts for minutes. If the provider has sent a refresh token,
a request of the session in the last quarter of that time fetches a new access token; only a request that comes
when the old one has expired waits for it.

PSI1  A renewed session belongs to the same user, with the rights of the new token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from recado.broker.scopes import TokenUser
from recado.server.connection import now_ms

from .access import MANAGEMENT_TAGS
from .identity_provider import IdentityProvider, PendingSignIn, ProviderError, Tokens
from .request import ApiError
from .sessions import TokenRenewal

if TYPE_CHECKING:
    from recado.broker.access import User

    from .console import Console
    from .sessions import ConsoleSession

log = logging.getLogger("recado.console")

RENEWED_AT_RATIO: Final = 0.75  # of the lifetime of a token
RETRY_MS: Final = 15_000  # after the provider did not answer
PENDING_REQUESTS_MAX: Final = 32  # to the provider, at once


class SignInError(Exception):
    """A user cannot sign in; `problem` is what the page tells."""

    def __init__(self, problem: str, reason: str) -> None:
        super().__init__(reason)
        self.problem = problem


class ProviderSignIn:
    """Opens and renews the sessions of one node."""

    def __init__(self, console: Console, provider: IdentityProvider) -> None:
        self._console = console
        self._provider = provider
        self._pending_count = 0
        self._renewals: set[asyncio.Task[None]] = set()

    @property
    def provider_name(self) -> str:
        return self._provider.host

    async def begin(self, redirect_uri: str) -> tuple[PendingSignIn, str]:
        """Begin a flow; return what the browser keeps, and where it goes. Raises `SignInError`."""
        pending = PendingSignIn.create()
        with self._place():
            try:
                return pending, await self._provider.address_of(pending, redirect_uri)
            except ProviderError as error:
                raise SignInError("provider", str(error)) from error

    async def finish(
        self, pending: PendingSignIn, code: str, redirect_uri: str, peer: str
    ) -> tuple[str, ConsoleSession]:
        """Redeem a code; return a new session and its id. Raises `SignInError`."""
        with self._place():
            try:
                tokens = await self._provider.redeem(code, pending, redirect_uri)
            except ProviderError as error:
                raise SignInError("provider", str(error)) from error
            try:
                user = await self._console.authenticate_token(tokens.access_token, peer)
            except ApiError as error:
                raise SignInError("refused", "the access token is refused") from error
        if MANAGEMENT_TAGS.isdisjoint(user.tags):
            raise SignInError("tag", f"the user {user.name!r} has no tag for the console")
        now = self._console.server.loop.time()
        session_id, session = self._console.sessions.open(user, now)
        session.renewal = _plan_renewal(user, tokens)
        return session_id, session

    def is_issuer(self, name: str) -> bool:
        """Whether an answer that names its issuer comes from the provider."""
        return self._provider.is_issuer(name)

    async def renew(self, session_id: str, session: ConsoleSession) -> None:
        """Renew the token of a session if it is time to; wait for it only if the token has expired."""
        renewal = session.renewal
        if renewal is None or now_ms() < renewal.due_ms:
            return
        task = renewal.task
        if task is None:
            steps = self._renew(session_id, session, renewal)
            task = renewal.task = self._console.server.loop.create_task(steps)
            self._renewals.add(task)
            task.add_done_callback(self._renewals.discard)
        if session.is_expired(now_ms()):
            await asyncio.shield(task)

    async def _renew(self, session_id: str, session: ConsoleSession, renewal: TokenRenewal) -> None:
        user = session.user
        try:
            tokens = await self._provider.refresh(renewal.refresh_token)
            renewed = await self._console.authenticate_token(tokens.access_token, "")
        except (ProviderError, ApiError) as error:
            log.warning("token of a console session not renewed: %s (user=%r)", error, user.name)
            renewal.due_ms = now_ms() + RETRY_MS
            if session.is_expired(now_ms()):
                self._console.sessions.close(session_id)
            return
        finally:
            renewal.task = None
        if renewed.name != user.name or MANAGEMENT_TAGS.isdisjoint(renewed.tags):
            log.warning(
                "closing console session: its new token is of another user, or without a tag (user=%r)",
                user.name,
            )
            self._console.sessions.close(session_id)
            return
        session.user = renewed
        session.renewal = _plan_renewal(renewed, tokens)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Count a flow that waits for the provider. Raises `SignInError` if they are too many."""
        if self._pending_count >= PENDING_REQUESTS_MAX:
            raise SignInError("provider", "too many users are signing in")
        self._pending_count += 1
        try:
            yield
        finally:
            self._pending_count -= 1

    async def stop(self) -> None:
        for task in list(self._renewals):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._provider.close()


def _plan_renewal(user: User, tokens: Tokens) -> TokenRenewal | None:
    if tokens.refresh_token is None or not isinstance(user, TokenUser):
        return None
    now = now_ms()
    lifetime_ms = max(user.expires_at * 1_000 - now, 0)
    return TokenRenewal(tokens.refresh_token, now + RENEWED_AT_RATIO * lifetime_ms)
