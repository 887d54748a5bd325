"""How a connection opens: protocol header, login, limits, vhost. Afterwards the session needs none of this."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from recado.amqp.errors import LoginRefused, NotAllowed, ProtocolError
from recado.amqp.events import Acked, Event, HeaderReceived, HeartbeatReceived, MethodReceived
from recado.amqp.frames import PROTOCOL_HEADER
from recado.amqp.handshake import (
    Credentials,
    Limits,
    Opened,
    ServerHandshake,
    Step,
    unexpected_method,
)
from recado.amqp.methods import (
    BasicAck,
    BasicPublish,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpenOk,
)
from recado.broker.access import User

from .offer import Offer

if TYPE_CHECKING:
    from .session import Session


class Opening:
    __slots__ = ("_credentials", "_full", "_handshake", "_session", "_user", "_verify")

    def __init__(
        self,
        session: "Session",
        offer: Offer,
        verify: Callable[["Session", Credentials], None],
        full: str | None,
    ) -> None:
        self._session = session
        self._verify = verify
        self._full = full
        self._user: User | None = None
        self._credentials: Credentials | None = None
        self._handshake = ServerHandshake(
            offer.server_properties(),
            ("PLAIN", "AMQPLAIN"),
            offer.frame_max,
            offer.channel_max,
            offer.heartbeat,
        )

    @property
    def is_verifying(self) -> bool:
        """Whether the credentials are being checked."""
        return self._handshake.step is Step.AWAIT_VERDICT

    def receive(self, event: Event) -> None:
        session = self._session
        match event:
            case HeaderReceived(header) if header == PROTOCOL_HEADER:
                session.send(0, self._handshake.start())
            case HeaderReceived():
                session.write(PROTOCOL_HEADER)
                session.end(0)
            case MethodReceived(_, ConnectionClose()):
                session.end(0)
                session.send(0, ConnectionCloseOk())
            case MethodReceived(_, method):
                try:
                    self._decided(self._handshake.receive(method))
                except ProtocolError as error:
                    error.failed = (method.class_id, method.method_id)
                    raise
            case HeartbeatReceived():
                pass
            case _:
                method_type = BasicAck if isinstance(event, Acked) else BasicPublish
                raise unexpected_method(self._handshake.step, method_type)

    def _decided(self, decision: Credentials | Limits | Opened) -> None:
        session = self._session
        match decision:
            case Credentials():
                self._credentials = decision
                session.told_of_cancel = decision.supports("consumer_cancel_notify")
                session.told_of_block = decision.supports("connection.blocked")
                session.is_stalled = (
                    True  # input behind start-ok waits for the verdict, as in RabbitMQ
                )
                self._verify(session, decision)
            case Limits():
                session.agreed(decision)
            case Opened(virtual_host):
                assert self._user is not None
                if self._full is not None:
                    raise NotAllowed(self._full)
                session.opened(session.broker.admit(self._user, virtual_host))
                session.send(0, ConnectionOpenOk())

    def admit(self, user: User) -> None:
        self._user = user
        self._session.send(0, self._handshake.accept())

    def refuse(self) -> bool:
        """Say so to clients that expect to be told; the others see the socket close."""
        assert self._credentials is not None
        if not self._credentials.supports("authentication_failure_close"):
            return False
        error = LoginRefused(
            f"Login was refused using authentication mechanism {self._credentials.mechanism}. "
            "For details see the broker logfile."
        )
        self._session.send(0, ConnectionClose(error.code, error.reply_text))
        return True
