"""A bare connection: it lives as long as its socket does, and when it dies everybody is told.

    async with await Connection.open("amqp://localhost") as connection:
        channel = await connection.channel(confirms=True)

Nothing is repaired here. The error that ended the connection is raised in every call that waits for the broker,
in every consumer's loop and every wait for a confirm, and in whatever is called afterwards.
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
from recado.amqp.values import Table

from .address import Address, parse_address
from .channel import Channel
from .errors import CannotConnect, ConnectionClosed, TlsFailed
from .occurrences import (
    Answered,
    BlockChanged,
    CameBack,
    ChannelEnded,
    Confirmed,
    ConsumerGone,
    Ended,
    FlowChanged,
    Occurrence,
    Opened,
)
from .waits import Waits, refuse
from .wire import Wire


class Connection:
    def __init__(self, address: Address, waits: Waits) -> None:
        """Use `Connection.open`."""
        self.address = address
        self.channels: dict[int, Channel] = {}
        self.error: Exception | None = None
        self.server_properties: Table = {}
        self.on_blocked: Callable[[str | None], object] | None = None
        self.on_end: Callable[[Exception], object] | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire = Wire(address, _introduction(address.name), waits, self._handle)

    @classmethod
    async def open(
        cls,
        url: str | Address,
        *,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
        waits: Waits | None = None,
    ) -> Self:
        """Connect and log in; `name` is shown by the broker.

        Whoever waits for more than one connection counts those who do in `waits`.
        """
        address = parse_address(url) if isinstance(url, str) else url
        if name is not None:
            address = msgspec.structs.replace(address, name=name)
        context = tls_context(address, tls)
        connection = cls(address, waits or Waits())
        try:
            async with asyncio.timeout(address.connection_timeout):
                await connection._connect(context)
        except TimeoutError:
            raise CannotConnect(
                f"no connection to {address} within {address.connection_timeout:g} s",
                "Somebody listens there but does not answer as a broker does, or packets are dropped.",
            ) from None
        except OSError as error:
            raise explained(address, error) from error
        finally:
            if not connection.is_open:
                connection._wire.fail(ConnectionClosed())
                await connection._wire.closed
        return connection

    async def _connect(self, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        address = self.address
        await loop.create_connection(
            lambda: self._wire,
            address.host,
            address.port,
            ssl=context,
            server_hostname=address.host if context is not None else None,
        )
        await self._opened

    @property
    def is_open(self) -> bool:
        return self.error is None and self._opened.done() and not self._opened.cancelled()

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages now; None while it does."""
        return self._wire.blocked

    def __repr__(self) -> str:
        return f"<Connection {self.address}{'' if self.error is None else ', ended'}>"

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A new channel; with `confirms` the broker says of each message that it has taken it."""
        self.check()
        return await Channel(self, self._wire).open(confirms=confirms)

    async def update_secret(self, secret: str, reason: str = "") -> None:
        """Tell the broker a new password, as those who log in with tokens must from time to time."""
        self.check()
        token = asyncio.get_running_loop().create_future()
        method = m.ConnectionUpdateSecret(secret.encode(), reason)
        self._wire.session.call(0, method, token)
        with self._wire.waits:
            await token

    async def close(self) -> None:
        """Part in order: what was published before is sent. Returns when the socket is closed."""
        self._wire.close()
        await asyncio.shield(self._wire.closed)

    def abort(self, error: Exception) -> None:
        """End it here and now, as if it had broken, for this reason."""
        self._wire.fail(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check(self) -> None:
        """Raises the error that ended the connection."""
        if self.error is not None:
            raise self.error.with_traceback(None)

    def _handle(self, occurrence: Occurrence) -> None:
        match occurrence:
            case Delivered(number):
                if number in self.channels:
                    self.channels[number].delivered(occurrence)
            case Confirmed(number, numbers, ok):
                self.channels[number].confirmation(numbers, ok)
            case Answered(token):
                if token is not None and not token.done():
                    token.set_result(occurrence)
            case CameBack(number, message):
                if number in self.channels:
                    self.channels[number].came_back(message)
            case ConsumerGone(number, tag):
                if number in self.channels:
                    self.channels[number].consumer_gone(tag)
            case FlowChanged(number, active):
                if number in self.channels:
                    self.channels[number].flow_changed(active)
            case ChannelEnded(number, error, tokens):
                refuse(tokens, error)
                self.channels.pop(number).end(error)
            case BlockChanged(reason):
                if self.on_blocked is not None:
                    self.on_blocked(reason)
            case Opened(properties):
                self.server_properties = properties
                self._wire.opened()
                self._opened.set_result(None)
            case Ended(error, tokens):
                self._end(error, tokens)

    def _end(self, error: Exception, tokens: list[object]) -> None:
        self.error = error
        refuse([self._opened, *tokens], error)
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.end(error)
        if self.on_end is not None:
            self.on_end(error)


def _introduction(name: str) -> Table:
    told: Table = {"product": "recado", "version": __version__, "platform": "Python"}
    return told | {"connection_name": name or f"recado client, process {os.getpid()}"}


def tls_context(address: Address, given: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """None for a plain connection."""
    if not address.tls:
        if given is not None:
            raise ValueError("TLS settings are for amqps:// URLs, and this one begins with amqp://")
        return None
    if given is not None:
        return given
    try:
        context = ssl.create_default_context(cafile=address.cafile)
        if address.certfile is not None:
            context.load_cert_chain(address.certfile, address.keyfile)
    except OSError as error:  # among them ssl.SSLError
        files = [f for f in (address.cafile, address.certfile, address.keyfile) if f is not None]
        raise TlsFailed(f"cannot use the certificates in {', '.join(files)}: {error}") from error
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def explained(address: Address, error: OSError) -> CannotConnect:
    place = f"{address.host}:{address.port}"
    match error:
        case ssl.SSLCertVerificationError():
            return TlsFailed(
                f"the certificate of {place} is not trusted: {error.verify_message}",
                "Name the authority that signed it by ?cafile=, and the host as the certificate does.",
            )
        case ssl.SSLError():
            return TlsFailed(
                f"no TLS with {place}: {error.reason or error}",
                "A broker's plain port wants amqp:// and another number than its TLS one.",
            )
        case socket.gaierror():
            return CannotConnect(
                f"there is no host '{address.host}'", "Look at the URL's spelling."
            )
        case ConnectionRefusedError():
            return CannotConnect(
                f"nobody listens at {place}", "Is the broker running, and is this its port?"
            )
        case _:
            return CannotConnect(f"cannot reach {place}: {error.strerror or error}")
