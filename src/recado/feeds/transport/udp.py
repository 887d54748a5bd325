"""A feed with no broker at all: UDP multicast on the local network, as in the paper.

    udp://239.255.42.1:PORT?interface=127.0.0.1&ttl=0&rate=40000000

Each member has two sockets: one in the group, for what is meant for many, and one of its own, from which it
sends everything and gets what is meant for it alone. So the address that a datagram came from is where its
sender is reached. Whoever is not heard of yet is called through the group.

U1  No datagram is larger than 60 KB; FRAG sees to that, by `largest`.
U2  No more than `rate` bytes are sent in a second: nobody tells a sender that a receiver's buffer is full,
    and what overflows it has to be asked for again.
U3  Whatever is sent to us, by whomever, stops neither what we send nor what others send us.
U4  Datagrams do not leave the local network: their time to live is 0 or 1.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from contextlib import ExitStack
from ipaddress import AddressValueError, IPv4Address
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, Channel, Target
from recado.feeds.errors import CannotJoin
from recado.feeds.naming import id_of, text_of
from recado.feeds.views import MemberId, Role

from .datagram import Datagram, decode, encode
from .port import UNTAGGED, Listener

LARGEST_DATAGRAM: Final = 60_000
ROOM_FOR_HEAD: Final = 800
"""Of a datagram: three names of up to 255 bytes."""
RECEIVE_BUFFER: Final = 8 << 20
"""Asked for; the system gives what it allows."""
READS_AT_ONCE: Final = 64
MOST_KNOWN: Final = 10_000
MOST_WAITING: Final = 32 << 20
"""Bytes that wait to be sent; beyond them only messages are taken, and those are few that were not sent yet."""
PACE_SECONDS: Final = 0.002

Address = tuple[str, int]
Letter = tuple[bytes, Address]

log = logging.getLogger("recado.feeds")


class Group(msgspec.Struct, frozen=True):
    """Where a group meets."""

    host: str
    port: int
    interface: str = "127.0.0.1"
    ttl: int = 0
    rate: int = 40_000_000


def parse_group(url: str) -> Group:
    """What a URL says, or a `ValueError` that names the part that is wrong."""
    parts = urlsplit(url)
    if parts.scheme != "udp":
        raise ValueError(f"a group's URL begins with udp://, not with {parts.scheme}://")
    host = parts.hostname or ""
    if not _is_address(host, multicast=True):
        raise ValueError(f"{host!r} is no multicast address; try one such as 239.255.42.1")
    try:
        port = parts.port or 0
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"the URL needs a port, from 1 to 65535: udp://{host}:4242")
    values: dict[str, str | int] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        match name:
            case "interface":
                if not _is_address(text, multicast=False):
                    raise ValueError(f"interface={text} is no address of an interface: 127.0.0.1")
                values[name] = text
            case "ttl":
                if text not in ("0", "1"):
                    raise ValueError(f"ttl={text}: 0 stays on this machine, 1 on this network")
                values[name] = int(text)
            case "rate":
                if not text.isdecimal() or int(text) < LARGEST_DATAGRAM:
                    raise ValueError(f"rate={text} is less than {LARGEST_DATAGRAM} bytes a second")
                values[name] = int(text)
            case _:
                raise ValueError(f"unknown option {name!r}; there are interface, ttl and rate")
    return msgspec.convert({"host": host, "port": port, **values}, Group)


def _is_address(text: str, *, multicast: bool) -> bool:
    try:
        return IPv4Address(text).is_multicast == multicast
    except AddressValueError:
        return False


class UdpCarrier:
    """Every member has sockets of its own, so there is nothing to open before one joins."""

    transport = "UDP"
    largest = LARGEST_DATAGRAM - ROOM_FOR_HEAD

    def __init__(self, group: Group) -> None:
        self._group = group

    async def join(self, feed: str, me: MemberId, role: Role, listener: Listener) -> UdpPort:
        with ExitStack() as stack:
            try:
                many = _group_socket(stack, self._group)
                own = _own_socket(stack, self._group)
            except OSError as error:
                raise CannotJoin(
                    f"cannot join the group {self._group.host}:{self._group.port} "
                    f"on {self._group.interface}: {error.strerror}",
                    "interface= names the address of an interface that does multicast.",
                ) from error
            stack.pop_all()
        return UdpPort(self._group, feed, me, role, listener, (many, own))

    async def close(self) -> None:
        """Ports close their sockets themselves."""


def _group_socket(stack: ExitStack, group: Group) -> socket.socket:
    made = _socket(stack)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((group.host, group.port))
    there = struct.pack("4s4s", socket.inet_aton(group.host), socket.inet_aton(group.interface))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, there)
    return made


def _own_socket(stack: ExitStack, group: Group) -> socket.socket:
    made = _socket(stack)
    made.bind((group.interface, 0))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(group.interface))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, group.ttl)
    return made


def _socket(stack: ExitStack) -> socket.socket:
    """Closed with the stack, whatever fails afterwards."""
    made = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return made


class UdpPort:
    def __init__(
        self,
        group: Group,
        feed: str,
        me: MemberId,
        role: Role,
        listener: Listener,
        sockets: tuple[socket.socket, socket.socket],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._group = (group.host, group.port)
        self._feed = feed
        self._me = text_of(me)
        self._listener = listener
        self._takes: set[str] = {self._me, ""}
        if role is not Role.PUBLISHER:
            self._takes.add(MEMBERS)
        if role is Role.ARCHIVE:
            self._takes.add(ARCHIVES)
        self._sockets = sockets
        self._addresses: dict[str, Address] = {}
        self._waiting: dict[Letter, int] = {}  # and its number
        self._waiting_bytes = 0
        self._burst = max(LARGEST_DATAGRAM, int(group.rate * PACE_SECONDS))
        self._room = self._burst
        self._pace: asyncio.TimerHandle | None = None
        self._sent = asyncio.Event()
        self._sent.set()
        self._closed = False
        for each in sockets:
            self._loop.add_reader(each, self._read, each)

    # --- out

    def cast(self, packet: bytes, key: str, number: int) -> None:
        self._post(Datagram(False, self._feed, self._me, "", packet), self._group, number)

    def send(self, to: Target, packet: bytes) -> None:
        text = text_of(to)
        address = self._addresses.get(text, self._group)
        self._post(Datagram(True, self._feed, self._me, text, packet), address, 0)

    def listen(self, *, to_coordinators: bool) -> None:
        if to_coordinators:
            self._takes.add(COORDINATORS)
        else:
            self._takes.discard(COORDINATORS)

    def settle(self, upto: int) -> None:
        """Nobody remembers what came."""

    def _post(self, datagram: Datagram, address: Address, number: int) -> None:
        # Whoever asks for everything again and again must not fill our memory (U3).
        letter = encode(datagram), address
        if letter in self._waiting or (not number and self._waiting_bytes > MOST_WAITING):
            return
        self._waiting_bytes += len(letter[0])
        self._waiting[letter] = number
        self._sent.clear()
        if self._pace is None:
            self._drain()

    def _drain(self) -> None:
        """Send what the pace allows; the rest follows at the next beat."""
        self._pace = None
        own = self._sockets[1]
        confirmed = 0
        while self._waiting and self._room > 0:
            letter, number = next(iter(self._waiting.items()))
            data, address = letter
            try:
                own.sendto(data, address)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    break
                if not number and self._is_of_this_one_only(error, address):
                    self._forget(letter)
                    continue
                self._loop.call_soon(self._listener.broken, error)
                self._waiting.clear()
                self._waiting_bytes = 0
                self._sent.set()
                return
            self._room -= len(data)
            self._forget(letter)
            confirmed = max(confirmed, number)
        if confirmed:
            self._loop.call_soon(self._confirm, confirmed)
        if not self._waiting:
            self._sent.set()
        if self._room < self._burst or self._waiting:
            self._pace = self._loop.call_later(PACE_SECONDS, self._next_beat)

    def _forget(self, letter: Letter) -> None:
        del self._waiting[letter]
        self._waiting_bytes -= len(letter[0])

    def _is_of_this_one_only(self, error: OSError, address: Address) -> bool:
        """Others can still be sent: it is too large, or an address is wrong that somebody made us believe."""
        if error.errno == errno.EMSGSIZE:
            log.warning("feed %s: what was to be said does not fit in a datagram", self._feed)
            return True
        return address != self._group

    def _next_beat(self) -> None:
        self._room = self._burst
        self._drain()

    def _confirm(self, number: int) -> None:
        if not self._closed:
            self._listener.confirmed(number)

    # --- in

    def _read(self, from_socket: socket.socket) -> None:
        for _ in range(READS_AT_ONCE):
            if self._closed:
                return
            try:
                data, address = from_socket.recvfrom(LARGEST_DATAGRAM + ROOM_FOR_HEAD)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._listener.broken(error)
                return
            self._received(data, address)

    def _received(self, data: bytes, address: Address) -> None:
        datagram = decode(data)
        if datagram is None or datagram.feed != self._feed or datagram.to not in self._takes:
            return
        sender = id_of(datagram.sender)
        if sender is None:
            return
        self._remember(datagram.sender, address)
        channel = Channel.A if datagram.on_a else Channel.P
        self._listener.arrived(channel, sender, datagram.packet, UNTAGGED)

    def _remember(self, sender: str, address: Address) -> None:
        known = self._addresses.get(sender)
        if known is None:
            if len(self._addresses) >= MOST_KNOWN:
                del self._addresses[next(iter(self._addresses))]
            self._addresses[sender] = address
        elif known != address:
            # Who says what another said before gets no letters of his: what is for him everybody gets.
            self._addresses[sender] = self._group

    async def close(self) -> None:
        """What waits for its pace is sent before, unless the sockets do not take it."""
        await self._sent.wait()
        if self._closed:
            return
        self._closed = True
        if self._pace is not None:
            self._pace.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
