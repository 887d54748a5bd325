"""The handshake of a connection: protocol header, login, limits, vhost.

The session discards it when the connection is open.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recado.amqp.errors import AmqpError, LoginRefusedError, NotAllowedError
from recado.amqp.events import (
    Acked,
    Event,
    HeartbeatReceived,
    MethodReceived,
    ProtocolHeaderReceived,
)
from recado.amqp.frames import PROTOCOL_HEADER
from recado.amqp.handshake import (
    ConnectionLimits,
    Credentials,
    HandshakeStep,
    OpenRequested,
    ServerHandshake,
    make_unexpected_method_error,
)
from recado.amqp.methods import (
    BasicAck,
    BasicPublish,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpenOk,
)
from recado.broker.access import User

from .options import ConnectionOptions

if TYPE_CHECKING:
    from .session import Session


class SessionHandshake:
    """Connects the state machine of the handshake (`ServerHandshake`) with the session and the login check."""

    __slots__ = ("_credentials", "_handshake", "_refusal_reason", "_session", "_user", "_verify")

    def __init__(
        self,
        session: "Session",
        options: ConnectionOptions,
        verify: Callable[["Session", Credentials], None],
        refusal_reason: str | None,
        mechanisms: Sequence[str],
    ) -> None:
        self._session = session
        self._verify = verify
        self._refusal_reason = refusal_reason
        self._user: User | None = None
        self._credentials: Credentials | None = None
        self._handshake = ServerHandshake(
            options.server_properties(),
            mechanisms,
            options.frame_max,
            options.channel_max,
            options.heartbeat,
        )

    @property
    def is_verifying(self) -> bool:
        """Whether the credentials are being checked."""
        return self._handshake.step is HandshakeStep.AWAIT_AUTHENTICATION

    def receive(self, event: Event) -> None:
        session = self._session
        match event:
            case ProtocolHeaderReceived(header) if header == PROTOCOL_HEADER:
                session.send(0, self._handshake.start())
            case ProtocolHeaderReceived():
                session.write(PROTOCOL_HEADER)
                session.terminate(0)
            case MethodReceived(_, ConnectionClose()):
                session.terminate(0)
                session.send(0, ConnectionCloseOk())
            case MethodReceived(_, method):
                try:
                    self._apply_decision(self._handshake.receive(method))
                except AmqpError as error:
                    error.method_ids = (method.class_id, method.method_id)
                    raise
            case HeartbeatReceived():
                pass
            case _:
                method_type = BasicAck if isinstance(event, Acked) else BasicPublish
                raise make_unexpected_method_error(self._handshake.step, method_type)

    def _apply_decision(self, decision: Credentials | ConnectionLimits | OpenRequested) -> None:
        session = self._session
        match decision:
            case Credentials():
                self._credentials = decision
                session.await_verdict(decision)
                self._verify(session, decision)
            case ConnectionLimits():
                session.apply_limits(decision)
            case OpenRequested(virtual_host):
                assert self._user is not None
                if self._refusal_reason is not None:
                    raise NotAllowedError(self._refusal_reason)
                session.enter_vhost(session.broker.grant_access(self._user, virtual_host))
                session.send(0, ConnectionOpenOk())

    def accept_login(self, user: User) -> None:
        self._user = user
        self._session.send(0, self._handshake.accept_credentials())

    def refuse_login(self) -> bool:
        """Send connection.close to a client that announced it understands that; return whether it was sent."""
        assert self._credentials is not None
        if not self._credentials.supports("authentication_failure_close"):
            return False
        error = LoginRefusedError(
            f"Login was refused using authentication mechanism {self._credentials.mechanism}. "
            "For details see the broker logfile."
        )
        self._session.send(0, ConnectionClose(error.code, error.reply_text))
        return True
