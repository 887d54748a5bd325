"""Who is let in: a name, a password, and the place that somebody comes from.

What the client is told is the same whatever was wrong, and takes as long: who guesses names learns nothing.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from recado.amqp.handshake import Credentials
from recado.broker.access import User

from .passwords import PasswordChecker, is_slow

if TYPE_CHECKING:
    from .connection import Connection
    from .server import Server

log = logging.getLogger("recado.server")

PENDING_CHECKS_MAX = 64  # passwords that wait to be checked slowly


class Authenticator:
    def __init__(self, server: "Server") -> None:
        self._server = server
        self._passwords = PasswordChecker()
        self._slow_checks = asyncio.Semaphore(2)
        self._tasks: set[asyncio.Task[None]] = set()

    def verify(self, connection: "Connection", credentials: Credentials) -> None:
        """Admit or refuse a connection, now or later."""
        user = self._server.broker.users.get(credentials.username)
        if user is not None:
            answer = self._passwords.check_now(user.password_hash, credentials.password)
        else:
            answer = None if self._any_slow_hash() is not None else False
        if answer is not None:
            self._apply_verdict(connection, user, credentials, answer)
        elif len(self._tasks) >= PENDING_CHECKS_MAX:
            self._refuse(connection, "too many wait for their passwords to be checked")
        else:
            check = self._verify_slowly(connection, user, credentials)
            task = self._server.loop.create_task(check)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _any_slow_hash(self) -> str | None:
        """Somebody's, to check what is said to be the password of nobody: for the time that it takes."""
        users = self._server.broker.users.values()
        return next((user.password_hash for user in users if is_slow(user.password_hash)), None)

    async def _verify_slowly(
        self, connection: "Connection", user: User | None, credentials: Credentials
    ) -> None:
        async with self._slow_checks:
            if connection in self._server.connections:
                stored = user.password_hash if user is not None else self._any_slow_hash() or ""
                right = await self._passwords.check_in_thread(stored, credentials.password)
                self._apply_verdict(connection, user, credentials, right)

    def _apply_verdict(
        self, connection: "Connection", user: User | None, credentials: Credentials, right: bool
    ) -> None:
        if user is None:
            self._refuse(connection, f"there is no user {credentials.username!r}")
        elif not right:
            self._refuse(connection, f"wrong password for {user.name!r}")
        elif user.loopback_only and not _is_loopback(connection.peer):
            self._refuse(connection, f"user {user.name!r} can only connect via localhost")
        else:
            connection.session.accept_login(user)

    def _refuse(self, connection: "Connection", why: str) -> None:
        """The log says why; the client, who may be guessing, is not told."""
        log.warning("login from %s refused: %s", connection.peer, why)
        connection.refuse_login()


def _is_loopback(peer: str) -> bool:
    """Whether an address, as the system writes it, is this machine's own."""
    return peer in ("::1", "local") or peer.startswith(("127.", "::ffff:127."))
