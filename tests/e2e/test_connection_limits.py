"""What a client may send after tuning: payloads of up to frame_max bytes, and any free channel number."""

from __future__ import annotations

import pytest
from pamqp import body, commands, frame, header

from workshop.peers import Server

from .wire import Wire, wire_to

FRAME_MAX_BYTES = 8192
CHANNEL_MAX = 3


def publishing(payload: bytes) -> bytes:
    """A message for the default exchange, its body in one frame; the queue does not exist."""
    parts = (
        commands.Basic.Publish(exchange="", routing_key="nowhere"),
        header.ContentHeader(body_size=len(payload)),
        body.ContentBody(payload),
    )
    return b"".join(frame.marshal(part, 1) for part in parts)


def ready_to_confirm(wire: Wire) -> None:
    wire.handshake(frame_max=FRAME_MAX_BYTES)
    wire.send(commands.Channel.Open(), commands.Confirm.Select(), channel=1)
    wire.expect(commands.Channel.OpenOk, commands.Confirm.SelectOk)


@pytest.mark.parametrize("below", [8, 7, 1, 0])
def test_a_payload_may_be_as_large_as_frame_max(server: Server, below: int) -> None:
    with wire_to(server, log_in=False) as wire:
        ready_to_confirm(wire)
        wire.send(publishing(bytes(FRAME_MAX_BYTES - below)))
        wire.expect(commands.Basic.Ack)


def test_a_payload_above_frame_max_is_refused(server: Server) -> None:
    with wire_to(server, log_in=False) as wire:
        ready_to_confirm(wire)
        wire.send(publishing(bytes(FRAME_MAX_BYTES + 1)))
        closed = wire.until_closed()
        assert isinstance(closed, commands.Connection.Close)
        assert closed.reply_code == 501


def test_a_delivery_keeps_to_frame_max_whatever_the_publisher_sent(server: Server) -> None:
    """The publisher's frame is 8 bytes longer than frame_max; the consumer's are not."""
    with wire_to(server, log_in=False) as wire:
        ready_to_confirm(wire)
        wire.send(
            commands.Queue.Declare(queue="nowhere", exclusive=True),
            commands.Basic.Consume(queue="nowhere", no_ack=True),
            channel=1,
        )
        wire.expect(commands.Queue.DeclareOk, commands.Basic.ConsumeOk)
        wire.send(publishing(bytes(FRAME_MAX_BYTES)))
        pieces: list[int] = []
        while sum(pieces) < FRAME_MAX_BYTES:
            _, received = wire.receive()
            if isinstance(received, body.ContentBody):
                pieces.append(len(received))
        assert pieces == [FRAME_MAX_BYTES - 8, 8]


def open_channels(wire: Wire, *numbers: int) -> None:
    for number in numbers:
        wire.send(commands.Channel.Open(), channel=number)
        channel, opened = wire.receive()
        assert channel == number
        assert isinstance(opened, commands.Channel.OpenOk)


def test_channel_max_limits_the_open_channels_not_their_numbers(server: Server) -> None:
    with wire_to(server, log_in=False) as wire:
        wire.handshake(channel_max=CHANNEL_MAX)
        open_channels(wire, 1, 2048, 65535)
        wire.send(commands.Channel.Close(200, "", 0, 0), channel=1)
        wire.expect(commands.Channel.CloseOk)
        open_channels(wire, 4)
        wire.send(commands.Channel.Open(), channel=2)
        closed = wire.until_closed()
        assert isinstance(closed, commands.Connection.Close)
        assert (closed.reply_code, closed.reply_text) == (
            530,
            "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)",
        )
