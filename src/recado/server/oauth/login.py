"""Logins with tokens, and new tokens of open connections (`connection.update-secret`).

A token cannot be guessed, so refused ones are not throttled. A client that is refused is not told why; the
reason is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from recado.amqp.errors import NotAllowedError
from recado.amqp.methods import ConnectionUpdateSecret
from recado.broker.scopes import TokenUser

from ..connection import now_ms
from .claims import TokenError

if TYPE_CHECKING:
    from ..connection import Connection
    from ..server import Server
    from .verifier import TokenVerifier

log = logging.getLogger("recado.server")


class TokenLogin:
    """Decides on the tokens of clients."""

    def __init__(self, server: Server, verifier: TokenVerifier) -> None:
        self._server = server
        self._verifier = verifier
        self.tasks: set[asyncio.Task[None]] = set()
        """Decisions that wait for a key; the event loop has only weak references to its tasks."""

    async def check(self, token: bytes, peer: str) -> TokenUser | None:
        """Return the user of a token, for other protocols than AMQP; None if it is refused."""
        try:
            return await self._verifier.check(token)
        except TokenError as error:
            self._log_refusal(error, peer)
            return None

    def verify(self, connection: Connection, token: bytes) -> None:
        """Accept or refuse a login, now or, if the key of the token has to be loaded, later."""

        def accept(user: TokenUser) -> None:
            connection.accept_login(user)
            connection.expire_at(user.expires_at)

        def refuse(error: TokenError) -> None:
            self._log_refusal(error, connection.peer)
            connection.refuse_login()

        self._decide(connection, token, accept, refuse)

    def update(self, connection: Connection, token: bytes) -> None:
        """Replace the token of an open connection, now or later; close the connection if it is refused."""

        def accept(user: TokenUser) -> None:
            access = connection.session.access
            assert access is not None, "only open connections are updated"
            if user.name != access.user.name:
                refuse(TokenError("the new token is of another user"))
            elif not user.may_enter(access.vhost.name):
                refuse(TokenError("the new token is not for the vhost of the connection"))
            else:
                access.set_user(user)
                connection.expire_at(user.expires_at)
                connection.session.confirm_secret()

        def refuse(error: TokenError) -> None:
            log.warning("new token refused: %s (peer=%s)", error, connection.peer)
            method = ConnectionUpdateSecret
            refusal = NotAllowedError("New secret was refused by one of the backends")
            connection.session.fail(refusal, now_ms(), (method.class_id, method.method_id))
            connection.sync_transport()

        self._decide(connection, token, accept, refuse)

    def _log_refusal(self, error: TokenError, peer: str) -> None:
        now = self._server.loop.time()
        if self._server.authenticator.refusals.admit("token refused", peer, now):
            log.warning("login refused: %s (peer=%s)", error, peer)

    def _decide(
        self,
        connection: Connection,
        token: bytes,
        accept: Callable[[TokenUser], None],
        refuse: Callable[[TokenError], None],
    ) -> None:
        try:
            user = self._verifier.check_now(token)
        except TokenError as error:
            refuse(error)
            return
        if user is not None:
            accept(user)
            return

        async def decide_later() -> None:
            try:
                later_user = await self._verifier.check(token)
            except TokenError as error:
                if connection in self._server.connections:
                    refuse(error)
            else:
                if connection in self._server.connections:
                    accept(later_user)

        task = self._server.loop.create_task(decide_later())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
