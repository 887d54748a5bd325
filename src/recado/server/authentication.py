"""Login: user name, password, and the address of the client.

The client cannot tell from a refusal whether the user name or the password was wrong: the reply is the same,
and an unknown user name takes as long as a wrong password. So guessing does not reveal which users exist.
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

PENDING_CHECKS_MAX = 64  # slow password checks that may wait or run


class Authenticator:
    """Decides on logins. At most two slow password checks run at a time."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._passwords = PasswordChecker()
        self._slow_checks = asyncio.Semaphore(2)
        self._tasks: set[asyncio.Task[None]] = set()

    def verify(self, connection: "Connection", credentials: Credentials) -> None:
        """Accept or refuse a login, now or, if the check is slow, later."""
        user = self._server.broker.users.get(credentials.username)
        if user is not None:
            answer = self._passwords.check_now(user.password_hash, credentials.password)
        else:
            answer = None if self._any_slow_hash() is not None else False
        if answer is not None:
            self._apply_verdict(connection, user, credentials, answer)
        elif len(self._tasks) >= PENDING_CHECKS_MAX:
            self._refuse(connection, credentials.username, "too many password checks are waiting")
        else:
            check = self._verify_slowly(connection, user, credentials)
            task = self._server.loop.create_task(check)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def check(self, username: str, password: bytes, peer: str) -> User | None:
        """Return the user with this password, for other protocols than AMQP; None if the login is refused."""
        user = self._server.broker.users.get(username)
        stored = user.password_hash if user is not None else self._any_slow_hash() or ""
        is_right = self._passwords.check_now(stored, password)
        if is_right is None:
            async with self._slow_checks:
                is_right = await self._passwords.check_in_thread(stored, password)
        reason = "wrong password"
        if user is None:
            reason = "unknown user"
        elif is_right and user.loopback_only and not _is_loopback(peer):
            reason = "user is limited to localhost"
        elif is_right:
            return user
        log.warning("login refused: %s (peer=%s user=%r)", reason, peer, username)
        return None

    def _any_slow_hash(self) -> str | None:
        """Return the slow hash of any user, to spend the usual time on a user name that does not exist."""
        users = self._server.broker.users.values()
        return next((user.password_hash for user in users if is_slow(user.password_hash)), None)

    async def _verify_slowly(
        self, connection: "Connection", user: User | None, credentials: Credentials
    ) -> None:
        async with self._slow_checks:
            if connection in self._server.connections:
                stored = user.password_hash if user is not None else self._any_slow_hash() or ""
                is_right = await self._passwords.check_in_thread(stored, credentials.password)
                self._apply_verdict(connection, user, credentials, is_right)

    def _apply_verdict(
        self, connection: "Connection", user: User | None, credentials: Credentials, is_right: bool
    ) -> None:
        if user is None:
            self._refuse(connection, credentials.username, "unknown user")
        elif not is_right:
            self._refuse(connection, user.name, "wrong password")
        elif user.loopback_only and not _is_loopback(connection.peer):
            self._refuse(connection, user.name, "user is limited to localhost")
        else:
            connection.session.accept_login(user)

    def _refuse(self, connection: "Connection", username: str, reason: str) -> None:
        """Refuse a login. The reason is logged, but not sent to the client, which may be guessing."""
        log.warning("login refused: %s (peer=%s user=%r)", reason, connection.peer, username)
        connection.refuse_login()


def _is_loopback(peer: str) -> bool:
    """Whether an address, as the system formats it, is this machine's own."""
    return peer in ("::1", "local") or peer.startswith(("127.", "::ffff:127."))
