"""Feeds without a broker: UDP multicast on the local network.

    udp://239.255.42.1:PORT?interface=127.0.0.1&ttl=0&rate=40000000

Each member has two sockets: one joined to the group, for packets to many members, and one of its own, from
which it sends everything and on which it receives packets to itself. So the source address of a datagram is the
address of its sender. Members whose address is unknown are reached through the group.

UP1  No datagram exceeds 60 KB; FRAG splits larger packets by `max_packet_bytes`.
UP2  Rate limit: every PACE_INTERVAL_S the budget becomes `rate` × PACE_INTERVAL_S bytes, or one datagram of the
     maximum size if that is more. Datagrams are sent while some budget is left, so the last one may exceed it, and
     a `rate` below 30 MB/s has no further effect. UDP has no flow control, and datagrams that overflow a receive
     buffer must be requested again.
UP3  No received datagram, from any host, prevents us from sending or from receiving datagrams of other hosts.
UP4  Datagrams do not leave the local network: their time to live is 0 or 1.
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

from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, PacketRoute, Target
from recado.feeds.errors import JoinError
from recado.feeds.naming import format_target, parse_member_id
from recado.feeds.views import MemberId, Role

from .datagram import Datagram, decode, encode
from .endpoint import NO_TAG, PacketListener

MAX_DATAGRAM_BYTES: Final = 60_000
MAX_DATAGRAM_HEADER_BYTES: Final = 800
"""Three names of up to 255 bytes, and the fixed part."""
RECEIVE_BUFFER_BYTES: Final = 8 << 20
"""Requested size; the system may grant less."""
MAX_READS_PER_WAKEUP_COUNT: Final = 64
MAX_KNOWN_ADDRESSES: Final = 10_000
MAX_QUEUED_BYTES: Final = 32 << 20
"""Beyond this many queued bytes only packets with messages are accepted; their number is limited by the send
window."""
PACE_INTERVAL_S: Final = 0.002

Address = tuple[str, int]
QueuedDatagram = tuple[bytes, Address]

log = logging.getLogger("recado.feeds")


class MulticastGroup(msgspec.Struct, frozen=True):
    """Address and parameters of a multicast group."""

    host: str
    port: int
    interface: str = "127.0.0.1"
    ttl: int = 0
    rate: int = 40_000_000


def parse_group(url: str) -> MulticastGroup:
    """Parse a URL; raise `ValueError` that names the invalid part."""
    parts = urlsplit(url)
    if parts.scheme != "udp":
        raise ValueError(f"the URL of a group must begin with udp://, not {parts.scheme}://")
    host = parts.hostname or ""
    if not _is_address(host, multicast=True):
        raise ValueError(f"{host!r} is not a multicast address such as 239.255.42.1")
    try:
        port = parts.port or 0
    except ValueError:
        port = 0
    if not port:
        raise ValueError(f"the URL needs a port from 1 to 65535: udp://{host}:4242")
    values: dict[str, str | int] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        match name:
            case "interface":
                if not _is_address(text, multicast=False):
                    raise ValueError(
                        f"interface={text} is not the address of an interface such as 127.0.0.1"
                    )
                values[name] = text
            case "ttl":
                if text not in ("0", "1"):
                    raise ValueError(f"ttl={text} must be 0 (this machine) or 1 (this network)")
                values[name] = int(text)
            case "rate":
                if not text.isdecimal() or int(text) < MAX_DATAGRAM_BYTES:
                    raise ValueError(
                        f"rate={text} must be at least {MAX_DATAGRAM_BYTES} bytes per second"
                    )
                values[name] = int(text)
            case _:
                raise ValueError(
                    f"unknown option {name!r}; the options are interface, ttl and rate"
                )
    return msgspec.convert({"host": host, "port": port, **values}, MulticastGroup)


def _is_address(text: str, *, multicast: bool) -> bool:
    try:
        return IPv4Address(text).is_multicast == multicast
    except AddressValueError:
        return False


class UdpFeedTransport:
    """Every member has its own sockets, so there is nothing to open before a member joins."""

    layer_name = "UDP"
    max_packet_bytes = MAX_DATAGRAM_BYTES - MAX_DATAGRAM_HEADER_BYTES
    is_connected = True

    def __init__(self, group: MulticastGroup) -> None:
        self._group = group

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> UdpEndpoint:
        with ExitStack() as stack:
            try:
                group_socket = _open_group_socket(stack, self._group)
                own_socket = _open_own_socket(stack, self._group)
            except OSError as error:
                raise JoinError(
                    f"cannot join multicast group {self._group.host}:{self._group.port} "
                    f"on {self._group.interface}: {error.strerror}",
                    "Set interface= to the address of an interface that supports multicast.",
                ) from error
            stack.pop_all()
        return UdpEndpoint(self._group, feed, member_id, role, listener, (group_socket, own_socket))

    async def close(self) -> None:
        """Endpoints close their sockets."""


def _open_group_socket(stack: ExitStack, group: MulticastGroup) -> socket.socket:
    socket_ = _open_socket(stack)
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    socket_.bind((group.host, group.port))
    membership = struct.pack(
        "4s4s", socket.inet_aton(group.host), socket.inet_aton(group.interface)
    )
    socket_.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    return socket_


def _open_own_socket(stack: ExitStack, group: MulticastGroup) -> socket.socket:
    socket_ = _open_socket(stack)
    socket_.bind((group.interface, 0))
    socket_.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(group.interface))
    socket_.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    socket_.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, group.ttl)
    return socket_


def _open_socket(stack: ExitStack) -> socket.socket:
    """Open a socket that the stack closes if a later step fails."""
    socket_ = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    socket_.setblocking(False)
    socket_.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return socket_


class UdpEndpoint:
    def __init__(
        self,
        group: MulticastGroup,
        feed: str,
        member_id: MemberId,
        role: Role,
        listener: PacketListener,
        sockets: tuple[socket.socket, socket.socket],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._group_address = (group.host, group.port)
        self._feed = feed
        self._member_text = format_target(member_id)
        self._listener = listener
        self._accepted_targets: set[str] = {self._member_text, ""}  # empty for broadcasts
        if role is not Role.PUBLISHER:
            self._accepted_targets.add(MEMBERS)
        if role is Role.ARCHIVE:
            self._accepted_targets.add(ARCHIVES)
        self._sockets = sockets
        self._addresses: dict[str, Address] = {}
        # With the last sequence in the datagram, 0 if it has no messages.
        self._send_queue: dict[QueuedDatagram, int] = {}
        self._queued_bytes = 0
        self._burst_bytes = max(MAX_DATAGRAM_BYTES, int(group.rate * PACE_INTERVAL_S))
        self._budget_bytes = self._burst_bytes
        self._pace_timer: asyncio.TimerHandle | None = None
        self._queue_empty = asyncio.Event()
        self._queue_empty.set()
        self._closed = False
        for each in sockets:
            self._loop.add_reader(each, self._read_socket, each)

    # --- output

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        self._enqueue(
            Datagram(False, self._feed, self._member_text, "", packet),
            self._group_address,
            last_sequence,
        )

    def send(self, to: Target, packet: bytes) -> None:
        text = format_target(to)
        address = self._addresses.get(text, self._group_address)
        self._enqueue(Datagram(True, self._feed, self._member_text, text, packet), address, 0)

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        if enabled:
            self._accepted_targets.add(COORDINATORS)
        else:
            self._accepted_targets.discard(COORDINATORS)

    def settle(self, last_tag: int) -> None:
        """No-op: there are no queues."""

    def _enqueue(self, datagram: Datagram, address: Address, last_sequence: int) -> None:
        # A peer that requests everything again and again must not fill our memory (UP3).
        queued = encode(datagram), address
        if queued in self._send_queue or (
            not last_sequence and self._queued_bytes > MAX_QUEUED_BYTES
        ):
            return
        self._queued_bytes += len(queued[0])
        self._send_queue[queued] = last_sequence
        self._queue_empty.clear()
        if self._pace_timer is None:
            self._send_queued()

    def _send_queued(self) -> None:
        """Send as much as the rate limit allows; the rest follows at the next interval."""
        self._pace_timer = None
        own_socket = self._sockets[1]
        confirmed = 0
        while self._send_queue and self._budget_bytes > 0:
            queued, last_sequence = next(iter(self._send_queue.items()))
            data, address = queued
            try:
                own_socket.sendto(data, address)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    break
                if not last_sequence and self._affects_one_datagram(error, queued):
                    self._dequeue(queued)
                    continue
                self._loop.call_soon(self._listener.transport_lost, error)
                self._send_queue.clear()
                self._queued_bytes = 0
                self._queue_empty.set()
                return
            self._budget_bytes -= len(data)
            self._dequeue(queued)
            confirmed = max(confirmed, last_sequence)
        if confirmed:
            self._loop.call_soon(self._notify_confirmed, confirmed)
        if not self._send_queue:
            self._queue_empty.set()
        if self._budget_bytes < self._burst_bytes or self._send_queue:
            self._pace_timer = self._loop.call_later(PACE_INTERVAL_S, self._refill_budget)

    def _dequeue(self, queued: QueuedDatagram) -> None:
        del self._send_queue[queued]
        self._queued_bytes -= len(queued[0])

    def _affects_one_datagram(self, error: OSError, queued: QueuedDatagram) -> bool:
        """Return whether only this datagram cannot be sent: it is too large, or its address was forged."""
        data, address = queued
        if error.errno == errno.EMSGSIZE:
            log.warning(
                "dropping packet: too large for a datagram (feed=%s bytes=%d)",
                self._feed,
                len(data),
            )
            return True
        return address != self._group_address

    def _refill_budget(self) -> None:
        self._budget_bytes = self._burst_bytes
        self._send_queued()

    def _notify_confirmed(self, last_sequence: int) -> None:
        if not self._closed:
            self._listener.broadcasts_confirmed(last_sequence)

    # --- input

    def _read_socket(self, from_socket: socket.socket) -> None:
        for _ in range(MAX_READS_PER_WAKEUP_COUNT):
            if self._closed:
                return
            try:
                data, address = from_socket.recvfrom(MAX_DATAGRAM_BYTES + MAX_DATAGRAM_HEADER_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._listener.transport_lost(error)
                return
            self._handle_datagram(data, address)

    def _handle_datagram(self, data: bytes, address: Address) -> None:
        datagram = decode(data)
        if (
            datagram is None
            or datagram.feed != self._feed
            or datagram.to not in self._accepted_targets
        ):
            return
        sender = parse_member_id(datagram.sender)
        if sender is None:
            return
        self._note_address(datagram.sender, address)
        route = PacketRoute.ADDRESSED if datagram.is_addressed else PacketRoute.BROADCAST
        self._listener.packet_received(route, sender, datagram.packet, NO_TAG)

    def _note_address(self, sender: str, address: Address) -> None:
        known = self._addresses.get(sender)
        if known is None:
            if len(self._addresses) >= MAX_KNOWN_ADDRESSES:
                del self._addresses[next(iter(self._addresses))]
            self._addresses[sender] = address
        elif known != address:
            # Two addresses claim to be this sender: send its packets through the group.
            self._addresses[sender] = self._group_address

    async def close(self) -> None:
        """Send queued datagrams first, unless the sockets refuse them."""
        await self._queue_empty.wait()
        if self._closed:
            return
        self._closed = True
        if self._pace_timer is not None:
            self._pace_timer.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
