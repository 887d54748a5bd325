"""Login: user name, password or client certificate, and the address of the client.

The client cannot tell from a refusal whether the user name or the password was wrong: the reply is the same,
and an unknown user name takes as long as a wrong password for a user with a slow hash (argon2), if there is
such a user. So guessing does not reveal which users exist, as long as all hashes are of one kind.

Logins over AMQP and HTTP share one `LoginThrottle`. The password of a throttled attempt is not checked.
Logins with certificates and tokens are not throttled, because they cannot be guessed.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from recado.amqp.handshake import EXTERNAL, Credentials
from recado.broker.access import User
from recado.broker.scopes import TokenUser

from .oauth.claims import is_token
from .passwords import PasswordChecker, is_slow
from .refusal_log import RefusalLog
from .throttle import LoginThrottle, LoginThrottledError

if TYPE_CHECKING:
    from .connection import Connection
    from .oauth.login import TokenLogin
    from .server import Server

log = logging.getLogger("recado.server")

PENDING_CHECKS_MAX = 64  # slow password checks that may wait or run


class LoginAttempts(msgspec.Struct):
    """The logins by one protocol since the start."""

    succeeded: int = 0
    failed: int = 0


class Authenticator:
    """Decides on logins. At most two slow password checks run at a time."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._passwords = PasswordChecker()
        self._throttle = LoginThrottle()
        self.refusals = RefusalLog()
        self.attempts: dict[str, LoginAttempts] = {}
        """By protocol, in RabbitMQ's words: `amqp091`, `http`."""
        self.tokens: TokenLogin | None = None
        """Logins with OAuth 2 tokens. A password that has the form of a token is then not tried as a password."""
        self._slow_checks = asyncio.Semaphore(2)
        self._tasks: set[asyncio.Task[None]] = set()

    def verify(self, connection: "Connection", credentials: Credentials) -> None:
        """Accept or refuse a login, now or, if the check is slow, later."""
        if credentials.mechanism == EXTERNAL:
            self._verify_certificate(connection)
            return
        if self.tokens is not None and is_token(credentials.password):
            self.tokens.verify(connection, credentials.password)
            return
        if self._is_throttled(connection, credentials.username):
            return
        user = self._server.broker.users.get(credentials.username)
        if user is not None:
            answer = self._passwords.check_now(user.password_hash, credentials.password)
        else:
            answer = None if self._any_slow_hash() is not None else False
        if answer is not None:
            self._apply_verdict(connection, user, credentials, answer)
        elif len(self._tasks) >= PENDING_CHECKS_MAX:
            log.warning(
                "login refused: too many password checks are waiting (peer=%s user=%r)",
                connection.peer,
                credentials.username,
            )
            connection.refuse_login()
        else:
            check = self._verify_slowly(connection, user, credentials)
            task = self._server.loop.create_task(check)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def check(self, username: str, password: bytes, peer: str) -> User | None:
        """Return the user with this password, for other protocols than AMQP; None if the login is refused.

        Raises `LoginThrottledError` if the attempt has to wait.
        """
        if self.tokens is not None and is_token(password):
            return await self.tokens.check(password, peer)
        self._check_throttle(peer, username)
        user = self._server.broker.users.get(username)
        stored = user.password_hash if user is not None else self._any_slow_hash() or ""
        is_right = self._passwords.check_now(stored, password)
        if is_right is None:
            async with self._slow_checks:
                self._check_throttle(peer, username)  # others have failed meanwhile
                is_right = await self._passwords.check_in_thread(stored, password)
        return self._decide(user, username, peer, is_right)

    async def check_token(self, token: bytes, peer: str) -> User | None:
        """Return the user with this token, for other protocols than AMQP; None if the login is refused."""
        return None if self.tokens is None else await self.tokens.check(token, peer)

    def count_attempt(self, protocol: str, *, succeeded: bool) -> None:
        """Count a login that was accepted or refused."""
        counted = self.attempts.setdefault(protocol, LoginAttempts())
        if succeeded:
            counted.succeeded += 1
        else:
            counted.failed += 1

    def update_secret(self, connection: "Connection", secret: bytes) -> None:
        """Handle a new secret of an open connection: a new token; new passwords are of no consequence."""
        access = connection.session.access
        if self.tokens is not None and access is not None and isinstance(access.user, TokenUser):
            self.tokens.update(connection, secret)
        else:
            connection.session.confirm_secret()

    def _verify_certificate(self, connection: "Connection") -> None:
        """Log in the user that the certificate of the client names."""
        login, certificate = self._server.options.certificate_login, connection.peer_certificate
        assert login is not None, "EXTERNAL is offered only with this option"
        assert certificate, "EXTERNAL is offered only to clients with a verified certificate"
        name = login.find_username(certificate)
        user = None if name is None else self._server.broker.users.get(name)
        refusal = _find_refusal(user, connection.peer)
        if name is None:
            refusal = f"the client certificate has no {login.source}"
        if user is not None and refusal is None:
            connection.accept_login(user)
        else:
            if self.refusals.admit(
                "certificate refused", connection.peer, self._server.loop.time()
            ):
                log.warning("login refused: %s (peer=%s user=%r)", refusal, connection.peer, name)
            connection.refuse_login()

    def _decide(
        self, checked: User | None, username: str, peer: str, is_right: bool
    ) -> User | None:
        """Return the user, as it is now, if it may log in, and tell the throttle.

        `checked` is the user whose password was checked; meanwhile, it may have been added, changed or deleted.
        The reason of a refusal is only logged.
        """
        now = self._server.loop.time()
        user = self._server.broker.users.get(username)
        if checked is None or (user is not None and user.password_hash != checked.password_hash):
            is_right = False
        refusal = _find_refusal(user, peer)
        if user is not None and not is_right:
            refusal = "wrong password"
        if user is not None and refusal is None:
            self._throttle.record_success(peer, username, now)
            return user
        self._throttle.record_failure(peer, username, now)
        log.warning("login refused: %s (peer=%s user=%r)", refusal, peer, username)
        return None

    def _is_throttled(self, connection: "Connection", username: str) -> bool:
        """Refuse an attempt that has to wait; return whether it was refused."""
        try:
            self._check_throttle(connection.peer, username)
        except LoginThrottledError:
            connection.refuse_login()
            return True
        return False

    def _check_throttle(self, peer: str, username: str) -> None:
        """Raise `LoginThrottledError` if an attempt has to wait, and log it."""
        now = self._server.loop.time()
        try:
            self._throttle.check(peer, username, now)
        except LoginThrottledError as error:
            if self.refusals.admit("login throttled", peer, now):
                log.warning(
                    "login throttled: too many failures (peer=%s user=%r wait_s=%.1f)",
                    peer,
                    username,
                    error.wait_s,
                )
            raise

    def _any_slow_hash(self) -> str | None:
        """Return the slow hash of any user, to spend the usual time on a user name that does not exist."""
        users = self._server.broker.users.values()
        return next((user.password_hash for user in users if is_slow(user.password_hash)), None)

    async def _verify_slowly(
        self, connection: "Connection", user: User | None, credentials: Credentials
    ) -> None:
        async with self._slow_checks:
            if connection in self._server.connections and not self._is_throttled(
                connection, credentials.username
            ):
                stored = user.password_hash if user is not None else self._any_slow_hash() or ""
                is_right = await self._passwords.check_in_thread(stored, credentials.password)
                self._apply_verdict(connection, user, credentials, is_right)

    def _apply_verdict(
        self, connection: "Connection", user: User | None, credentials: Credentials, is_right: bool
    ) -> None:
        accepted = self._decide(user, credentials.username, connection.peer, is_right)
        if accepted is not None:
            connection.accept_login(accepted)
        else:  # the client is not told the reason: it may be guessing
            connection.refuse_login()


def _find_refusal(user: User | None, peer: str) -> str | None:
    """Return why a user may not log in from an address, None if it may."""
    if user is None:
        return "unknown user"
    if user.loopback_only and not _is_loopback(peer):
        return "user is limited to localhost"
    return None


def _is_loopback(peer: str) -> bool:
    """Whether an address, as the system formats it, is this machine's own."""
    return peer in ("::1", "local") or peer.startswith(("127.", "::ffff:127."))
