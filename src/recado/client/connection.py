"""A plain connection: it lasts as long as its socket and does not reconnect.

    async with await Connection.open("amqp://localhost") as connection:
        channel = await connection.channel(confirms=True)

When the connection ends, the error is raised in every call that waits for the broker, in every wait for a
confirm, and in every later call. Iterations over consumers raise it too, or end if this program closed the
connection.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Self

import msgspec

from recado import __version__
from recado.amqp import methods as m
from recado.amqp.deliveries import Delivered
from recado.amqp.values import FieldTable

from .channel import Channel
from .errors import CannotConnectError, ConnectionClosedByClientError, TlsError
from .parameters import ConnectionParameters, parse_url
from .protocol import ConnectionProtocol
from .session_events import (
    BlockedStateChanged,
    ChannelTerminated,
    ConnectionOpened,
    ConnectionTerminated,
    ConsumerCancelReceived,
    FlowChanged,
    MessageReturned,
    PublishesConfirmed,
    ReplyReceived,
    SessionEvent,
)
from .waiters import WaitCounter, fail_futures


class Connection:
    """An AMQP connection that does not reconnect; made by `Connection.open`."""

    def __init__(self, parameters: ConnectionParameters, wait_counter: WaitCounter) -> None:
        """Use `Connection.open`."""
        self.parameters = parameters
        self.channels: dict[int, Channel] = {}
        self.error: Exception | None = None
        self.server_properties: FieldTable = {}
        self.on_blocked: Callable[[str | None], object] | None = None
        self.on_end: Callable[[Exception], object] | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = ConnectionProtocol(
            parameters, _make_client_properties(parameters.name), wait_counter, self._handle_event
        )

    @classmethod
    async def open(
        cls,
        url: str | ConnectionParameters,
        *,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
        wait_counter: WaitCounter | None = None,
    ) -> Self:
        """Connect and log in.

        `tls` replaces the TLS context made from the URL. `name` is shown in the broker's list of connections.
        A robust connection passes the same `wait_counter` to each of its connections. Raises
        `CannotConnectError` or one of its subclasses, and `ValueError` if the URL is wrong.
        """
        parameters = parse_url(url) if isinstance(url, str) else url
        if name is not None:
            parameters = msgspec.structs.replace(parameters, name=name)
        context = make_tls_context(parameters, tls)
        connection = cls(parameters, wait_counter or WaitCounter())
        try:
            async with asyncio.timeout(parameters.connection_timeout):
                await connection._connect(context)
        except TimeoutError:
            raise CannotConnectError(
                f"no connection to {parameters} within {parameters.connection_timeout:g} s",
                "The port is open but does not respond like a broker, or packets are dropped on the way; "
                "setting connection_timeout.",
            ) from None
        except OSError as error:
            raise explain_os_error(parameters, error) from error
        finally:
            if not connection.is_open:
                connection._protocol.fail(ConnectionClosedByClientError())
                await connection._protocol.closed
        return connection

    async def _connect(self, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        parameters = self.parameters
        await loop.create_connection(
            lambda: self._protocol,
            parameters.host,
            parameters.port,
            ssl=context,
            server_hostname=parameters.host if context is not None else None,
        )
        await self._opened

    @property
    def is_open(self) -> bool:
        """Whether the handshake is complete and the connection has not ended."""
        return self.error is None and self._opened.done() and not self._opened.cancelled()

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker accepts no messages now (connection.blocked); None if it accepts them."""
        return self._protocol.blocked_reason

    def __repr__(self) -> str:
        return f"<Connection {self.parameters}{'' if self.error is None else ', ended'}>"

    async def channel(self, *, confirms: bool = False) -> Channel:
        """Open a channel; with `confirms` the broker confirms each published message."""
        self.check_open()
        return await Channel(self, self._protocol).open(confirms=confirms)

    async def update_secret(self, secret: str, reason: str = "") -> None:
        """Send a new password to the broker, for example a renewed OAuth token."""
        self.check_open()
        token = asyncio.get_running_loop().create_future()
        method = m.ConnectionUpdateSecret(secret.encode(), reason)
        self._protocol.session.call(0, method, token)
        with self._protocol.wait_counter:
            await token

    async def close(self) -> None:
        """Send all output, close the connection, and return when the socket is closed."""
        self._protocol.close()
        await asyncio.shield(self._protocol.closed)

    def abort(self, error: Exception) -> None:
        """End the connection at once with this error, as if the socket had broken."""
        self._protocol.fail(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check_open(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    def _handle_event(self, event: SessionEvent) -> None:
        match event:
            case Delivered(number):
                if number in self.channels:
                    self.channels[number].handle_deliveries(event)
            case PublishesConfirmed(number, numbers, ok):
                if number in self.channels:
                    self.channels[number].handle_confirms(numbers, ok)
            case ReplyReceived(token):
                if token is not None and not token.done():
                    token.set_result(event)
            case MessageReturned(number, message):
                if number in self.channels:
                    self.channels[number].handle_return(message)
            case ConsumerCancelReceived(number, tag):
                if number in self.channels:
                    self.channels[number].handle_consumer_cancel(tag)
            case FlowChanged(number, active):
                if number in self.channels:
                    self.channels[number].handle_flow(active)
            case ChannelTerminated(number, error, tokens):
                fail_futures(tokens, error)
                self.channels.pop(number).terminate(error)
            case BlockedStateChanged(reason):
                if self.on_blocked is not None:
                    self.on_blocked(reason)
            case ConnectionOpened(properties):
                self.server_properties = properties
                self._protocol.start_heartbeats()
                self._opened.set_result(None)
            case ConnectionTerminated(error, tokens):
                self._terminate(error, tokens)

    def _terminate(self, error: Exception, pending_tokens: list[object]) -> None:
        self.error = error
        fail_futures([self._opened, *pending_tokens], error)
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.terminate(error)
        if self.on_end is not None:
            self.on_end(error)


def _make_client_properties(name: str) -> FieldTable:
    properties: FieldTable = {"product": "recado", "version": __version__, "platform": "Python"}
    return properties | {"connection_name": name or f"recado client, process {os.getpid()}"}


def make_tls_context(
    parameters: ConnectionParameters, custom_context: ssl.SSLContext | None
) -> ssl.SSLContext | None:
    """Return the TLS context for amqps:// URLs, and None for amqp://; raises `TlsError` or `ValueError`."""
    if not parameters.tls:
        if custom_context is not None:
            raise ValueError("a TLS context was passed for an amqp:// URL: use amqps://")
        return None
    if custom_context is not None:
        return custom_context
    try:
        context = ssl.create_default_context(cafile=parameters.cafile)
        if parameters.certfile is not None:
            context.load_cert_chain(parameters.certfile, parameters.keyfile)
    except OSError as error:  # ssl.SSLError is a subclass
        files = [
            f for f in (parameters.cafile, parameters.certfile, parameters.keyfile) if f is not None
        ]
        raise TlsError(f"cannot load the certificates in {', '.join(files)}: {error}") from error
    if not parameters.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def explain_os_error(parameters: ConnectionParameters, error: OSError) -> CannotConnectError:
    """Return the `CannotConnectError` for an error of the operating system, with a hint."""
    endpoint = f"{parameters.host}:{parameters.port}"
    match error:
        case ssl.SSLCertVerificationError():
            return TlsError(
                f"the certificate of {endpoint} is not trusted: {error.verify_message}",
                "Pass the certificate authority as ?cafile=, and the host name that the certificate contains.",
            )
        case ssl.SSLError():
            return TlsError(
                f"TLS handshake with {endpoint} failed: {error.reason or error}",
                "Check the port: TLS (amqps://) and plain connections (amqp://) use different ports of a broker.",
            )
        case socket.gaierror():
            return CannotConnectError(
                f"unknown host '{parameters.host}'", "Check the spelling of the URL."
            )
        case ConnectionRefusedError():
            return CannotConnectError(
                f"connection to {endpoint} refused", "Is the broker running, and is this its port?"
            )
        case _:
            return CannotConnectError(f"cannot connect to {endpoint}: {error.strerror or error}")
