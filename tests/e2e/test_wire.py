"""Below the clients: handshakes, frames that should not be, and what the broker says to them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from pamqp import body, commands, frame, header
from pamqp.common import FieldTable

from workshop.peers import Server

from .wire import HEADER, Wire, wire_to

HEADERS = [
    b"AMQP\x00\x00\x09\x00",
    b"AMQP\x01\x01\x00\x0a",
    b"AMQP\x00\x01\x00\x00",
    b"HTTP/1.1",
    b"GET / HT",
]


@pytest.mark.parametrize("sent", HEADERS)
def test_another_protocol_is_told_ours(server: Server, sent: bytes) -> None:
    with wire_to(server, log_in=False) as wire:
        wire.send(sent)
        assert wire.socket.recv(8) == HEADER
        assert wire.at_end()


def test_a_header_may_come_byte_by_byte(server: Server) -> None:
    with wire_to(server, log_in=False) as wire:
        for position in range(len(HEADER)):
            wire.send(HEADER[position : position + 1])
        start = wire.expect(commands.Connection.Start)
        assert isinstance(start, commands.Connection.Start)
        assert (start.version_major, start.version_minor) == (0, 9)
        assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())


def log_in(wire: Wire, mechanism: str, response: str, capable: bool = True) -> None:
    capabilities: FieldTable = {"authentication_failure_close": capable}
    wire.send(HEADER)
    wire.expect(commands.Connection.Start)
    start_ok = commands.Connection.StartOk({"capabilities": capabilities}, mechanism, response)
    wire.send(start_ok)


def test_the_older_login_of_python_clients(server: Server) -> None:
    with wire_to(server, log_in=False) as wire:
        response = "\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"
        log_in(wire, "AMQPLAIN", response)
        wire.expect(commands.Connection.Tune)


def test_a_wrong_password_is_told_only_to_those_who_understand(server: Server) -> None:
    with wire_to(server, log_in=False) as wire:
        log_in(wire, "PLAIN", "\0guest\0wrong")
        closed = wire.expect(commands.Connection.Close)
        assert isinstance(closed, commands.Connection.Close)
        assert closed.reply_code == 403
    with wire_to(server, log_in=False) as wire:
        log_in(wire, "PLAIN", "\0guest\0wrong", capable=False)
        assert wire.at_end()


def broken_handshakes() -> dict[str, Callable[[Wire], None]]:
    return {
        "an unknown mechanism": lambda wire: log_in(wire, "MAGIC", ""),
        "another method than start-ok": lambda wire: wire.send(
            HEADER, commands.Connection.Open("/")
        ),
    }


@pytest.mark.parametrize("broken", broken_handshakes())
def test_a_handshake_out_of_order_ends(server: Server, broken: str) -> None:
    with wire_to(server, log_in=False) as wire:
        broken_handshakes()[broken](wire)
        wire.until_end()


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    """| type u8 | channel u16 | size u32 | payload | 0xCE |"""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def opened(*parts: bytes) -> bytes:
    """Open channel 1, and then these bytes."""
    return b"".join((frame.marshal(commands.Channel.Open(), 1), *parts))


PUBLISH = frame.marshal(commands.Basic.Publish(exchange="", routing_key="nowhere"), 1)
CONTENT = frame.marshal(header.ContentHeader(body_size=4), 1)

MISUSES = {
    "a method on a channel that is not open": (
        frame.marshal(commands.Basic.Get(queue="q"), 7),
        504,
    ),
    "a channel opened twice": (opened(frame.marshal(commands.Channel.Open(), 1)), 504),
    "a body without a header": (opened(PUBLISH, frame.marshal(body.ContentBody(b"body"), 1)), 505),
    "a header without a publish": (opened(CONTENT), 505),
    "a method where a body is due": (
        opened(PUBLISH, CONTENT, frame.marshal(commands.Tx.Select(), 1)),
        505,
    ),
    "a frame without its end": (raw_frame(1, 1, b"\x00\x14\x00\x0a\x00", b"\x00"), 501),
    "a frame of unknown type": (opened(raw_frame(7, 1, b"what")), 501),
    "a frame above the limit": (opened(raw_frame(1, 1, bytes(140_000))), 501),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_closes_the_connection_with_its_code(server: Server, misuse: str) -> None:
    sent, code = MISUSES[misuse]
    with wire_to(server) as wire:
        wire.send(sent)
        closed = wire.until_closed()
        assert isinstance(closed, commands.Connection.Close)
        assert closed.reply_code == code, closed.reply_text
        wire.send(commands.Connection.CloseOk())
        assert wire.at_end()


def test_arguments_that_are_cut_short_close_the_connection(server: Server) -> None:
    with wire_to(server) as wire:
        wire.send(opened(raw_frame(1, 1, b"\x00\x32\x00\x0a\x00")))
        closed = wire.until_closed()
        assert isinstance(closed, commands.Connection.Close)
        # By the specification it is a syntax error.
        assert (closed.reply_code, closed.class_id, closed.method_id) == (501, 50, 10)


def test_a_method_of_an_unknown_class_ends_the_connection(server: Server) -> None:
    with wire_to(server) as wire:
        wire.send(opened(raw_frame(1, 1, b"\x00\x63\x00\x01")))
        # RabbitMQ's reader breaks and resets the socket without a word.
        with suppress(EOFError, ConnectionResetError):
            closed = wire.until_closed()
            assert isinstance(closed, commands.Connection.Close)
            assert (closed.reply_code, closed.class_id, closed.method_id) == (503, 99, 1)


def test_what_follows_a_channel_error_is_discarded_until_close_ok(server: Server) -> None:
    with wire_to(server) as wire:
        missing = commands.Queue.Declare(queue="no such queue", passive=True)
        wire.send(commands.Channel.Open(), missing, missing, commands.Tx.Select(), channel=1)
        wire.expect(commands.Channel.OpenOk, commands.Channel.Close)
        wire.send(commands.Channel.CloseOk(), commands.Channel.Open(), channel=1)
        wire.send(commands.Tx.Select(), channel=1)
        wire.expect(commands.Channel.OpenOk, commands.Tx.SelectOk)


def test_a_client_may_write_behind_its_close(server: Server) -> None:
    """amqplib sends the acks of its last turn after connection.close; a reset would be an error."""
    with wire_to(server) as wire:
        wire.send(commands.Connection.Close(200, "done", 0, 0))
        wire.expect(commands.Connection.CloseOk)
        for _ in range(20):
            wire.send(commands.Basic.Ack(1), channel=1)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.at_end()


def test_methods_that_want_no_answer_get_none(server: Server) -> None:
    with wire_to(server) as wire:
        wire.send(
            commands.Channel.Open(),
            commands.Queue.Declare(queue="", exclusive=True),
            channel=1,
        )
        declared = wire.expect(commands.Channel.OpenOk, commands.Queue.DeclareOk)
        assert isinstance(declared, commands.Queue.DeclareOk)
        queue = declared.queue or ""
        bind = commands.Queue.Bind(queue=queue, exchange="amq.fanout", nowait=True)
        wire.send(
            bind,
            commands.Basic.Consume(queue=queue, consumer_tag="t", no_ack=True, nowait=True),
            commands.Confirm.Select(nowait=True),
            commands.Basic.Cancel(consumer_tag="t", nowait=True),
            commands.Queue.Purge(queue=queue, nowait=True),
            commands.Queue.Delete(queue=queue, nowait=True),
            commands.Basic.Qos(),
            channel=1,
        )
        wire.expect(commands.Basic.QosOk)


def test_a_client_that_stays_silent_is_closed(server: Server) -> None:
    with wire_to(server, log_in=False) as wire:
        wire.handshake(heartbeat=1)
        wire.until_end()
