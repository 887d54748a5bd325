"""Generated protocol errors: every method in every state of a connection and a channel, and malformed frames.

A case brings a connection into a state, sends bytes, and then a probe, which shows whether the connection can
still be used. Its outcome is a value that can be compared between brokers: the answers by name, a close with
its reply code and the ids of the failed method, and how it went on: `usable`, `ended` (the broker closed the
socket) or `silent` (no answer to the probe either).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from recado.amqp import methods as m
from recado.amqp.codec import encode_method
from recado.amqp.values import FieldTable
from workshop.peers import Server

from .raw_frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Answer,
    Decoder,
    content_header,
    frame,
    method,
)

CONNECTIONS = 256  # open at a time, on one broker
DEADLINE_S = 60.0  # for one case; RabbitMQ delays some refusals by 3 s
FRAME_MAX = 131_072

CAPABILITIES: FieldTable = {"authentication_failure_close": True, "consumer_cancel_notify": True}
START_OK = m.ConnectionStartOk({"capabilities": CAPABILITIES}, "PLAIN", b"\0guest\0guest")
TUNE_OK = m.ConnectionTuneOk(2047, FRAME_MAX, 0)
OPEN = m.ConnectionOpen("/")

CHANNEL, OTHER_CHANNEL = (
    1,
    2,
)  # the channel of the case, and one to see whether the connection is usable
BODY_SIZE = 5

# Methods with arguments that succeed on an open channel whose last declared queue is exclusive and empty.
EXAMPLES: dict[type[m.Method], m.Method] = {
    m.ConnectionStartOk: START_OK,
    m.ConnectionTuneOk: TUNE_OK,
    m.ConnectionClose: m.ConnectionClose(200, "done"),
    m.ChannelFlow: m.ChannelFlow(True),
    m.ChannelClose: m.ChannelClose(200, "done"),
    m.ExchangeDeclare: m.ExchangeDeclare("amq.fanout", "fanout", durable=True),
    m.ExchangeDelete: m.ExchangeDelete("no-such-exchange"),
    m.ExchangeBind: m.ExchangeBind("amq.fanout", "amq.direct", "no-such-key"),
    m.ExchangeUnbind: m.ExchangeUnbind("amq.fanout", "amq.direct", "no-such-key"),
    m.QueueDeclare: m.QueueDeclare(exclusive=True),
    m.QueueBind: m.QueueBind(exchange="amq.direct", routing_key="no-such-key"),
    m.QueueUnbind: m.QueueUnbind(exchange="amq.direct", routing_key="no-such-key"),
    m.BasicQos: m.BasicQos(prefetch_count=1),
    m.BasicPublish: m.BasicPublish(routing_key="no-such-queue"),
    m.BasicRecover: m.BasicRecover(True),
    m.BasicRecoverAsync: m.BasicRecoverAsync(True),
    m.BasicAck: m.BasicAck(0, multiple=True),
    m.BasicNack: m.BasicNack(0, multiple=True),
}
# RabbitMQ sends these answers from another process, so that the answer to a later method may overtake them.
LATE_ANSWERS: dict[type[m.Method], str] = {m.BasicConsume: "basic.consume-ok"}
ENDS_CHANNEL = (m.ChannelClose, m.ChannelCloseOk)


def example(of: type[m.Method]) -> m.Method:
    return EXAMPLES.get(of) or of()


def named(of: type[m.Method]) -> m.Method:
    """The example with the name of a queue, where it says the last declared one."""
    found = example(of)
    if getattr(found, "queue", None) == "" and of in _COMMANDS_OF_QUEUES:
        return msgspec.structs.replace(found, queue="no-such-queue")
    return found


_COMMANDS_OF_QUEUES = (
    m.QueueBind,
    m.QueueUnbind,
    m.QueuePurge,
    m.QueueDelete,
    m.BasicConsume,
    m.BasicGet,
)


# ── states ────────────────────────────────────────────────────────────────────────────────────────────────


class State(NamedTuple):
    """How a connection gets into a state: bytes to send, each with the answer to wait for."""

    name: str
    steps: tuple[tuple[bytes, Answer], ...]
    channel: int
    probe: tuple[tuple[bytes, Answer], ...] = ()
    completes_content: bool = True  # send the content of methods that have one
    ends_output: bool = False  # the client ends its half of the socket after connection.close-ok


def _step(sent: bytes, name: str, channel: int = 0) -> tuple[bytes, Answer]:
    return sent, Answer(channel, name)


_START = _step(PROTOCOL_HEADER, "connection.start")
_TUNE = _step(method(0, START_OK), "connection.tune")
_OPENED = _step(
    PROTOCOL_HEADER + method(0, START_OK) + method(0, TUNE_OK) + method(0, OPEN),
    "connection.open-ok",
)
_USABLE = _step(method(OTHER_CHANNEL, m.ChannelOpen()), "channel.open-ok", OTHER_CHANNEL)
_QOS = _step(method(CHANNEL, m.BasicQos()), "basic.qos-ok", CHANNEL)
_FLOW = _step(method(CHANNEL, m.ChannelFlow(True)), "channel.flow-ok", CHANNEL)
_DECLARED = _step(
    method(CHANNEL, m.ChannelOpen()) + method(CHANNEL, m.QueueDeclare(exclusive=True)),
    "queue.declare-ok",
    CHANNEL,
)
_CHANNEL_OPENED = _step(method(CHANNEL, m.ChannelOpen()), "channel.open-ok", CHANNEL)
_PUBLISH = method(CHANNEL, example(m.BasicPublish))
_MISSING = method(CHANNEL, m.QueueDeclare("no-such-queue", passive=True))
_CHANNEL_FAILED = (_MISSING, Answer(CHANNEL, "channel.close", 404, (50, 10)))
_CONNECTION_FAILED = (
    method(0, m.ChannelOpen()),
    Answer(0, "connection.close", 504, (20, 10)),
)
_LEAVE = _step(
    method(0, m.ConnectionClose(200, "done")) + method(0, m.ConnectionCloseOk()),
    "connection.close-ok",
)


def _joined(*steps: tuple[bytes, Answer]) -> tuple[tuple[bytes, Answer], ...]:
    """Several steps at once; the last answer is waited for."""
    return ((b"".join(sent for sent, _ in steps), steps[-1][1]),)


def _sent_behind(
    steps: tuple[tuple[bytes, Answer], ...], *sent: bytes
) -> tuple[tuple[bytes, Answer], ...]:
    """The steps, and then bytes that get no answer: they are made visible by the answer of another channel."""
    third = _step(b"".join(sent) + method(3, m.ChannelOpen()), "channel.open-ok", 3)
    return (*steps, third)


_READY = (_USABLE, _QOS)
_READY_CLOSING = (
    _USABLE,
    _step(method(CHANNEL, m.ChannelClose(200, "done")), "channel.close-ok", CHANNEL),
)

HANDSHAKE = (
    State("start-ok expected", (_START,), 0),
    State("tune-ok expected", (_START, _TUNE), 0),
    State(
        "connection.open expected",
        (_START, _TUNE, (method(0, TUNE_OK), Answer(0, ""))),
        0,
    ),
)
_OPEN_CHANNEL = _joined(_OPENED, _DECLARED)
CHANNEL_0 = State("channel 0", (_OPENED,), 0, (_USABLE,))
NOT_OPEN = State("channel not open", (_OPENED,), CHANNEL)
OPEN_CHANNEL = State("channel open", _OPEN_CHANNEL, CHANNEL, _READY)
CONFIRMS = State(
    "confirm mode",
    _joined(_OPENED, _DECLARED, _step(method(CHANNEL, m.ConfirmSelect()), "confirm.select-ok", 1)),
    CHANNEL,
    _READY,
)
TRANSACTIONS = State(
    "tx mode",
    _joined(_OPENED, _DECLARED, _step(method(CHANNEL, m.TxSelect()), "tx.select-ok", CHANNEL)),
    CHANNEL,
    _READY,
)
HEADER_EXPECTED = State(
    "content header expected",
    _sent_behind(_joined(_OPENED, _CHANNEL_OPENED), _PUBLISH),
    CHANNEL,
    (_USABLE,),
    completes_content=False,
)
BODY_EXPECTED = State(
    "content body expected",
    _sent_behind(_joined(_OPENED, _CHANNEL_OPENED), _PUBLISH, content_header(CHANNEL, BODY_SIZE)),
    CHANNEL,
    (_USABLE,),
    completes_content=False,
)
CHANNEL_CLOSING = State(
    "channel closing", _joined(_OPENED, _CHANNEL_OPENED, _CHANNEL_FAILED), CHANNEL, _READY_CLOSING
)
CLOSED_BY_CLIENT = State(
    "channel closed by the client",
    (
        *_joined(_OPENED, _CHANNEL_OPENED),
        _step(method(CHANNEL, m.ChannelClose(200, "done")), "channel.close-ok", CHANNEL),
    ),
    CHANNEL,
)
CLOSED_BY_BROKER = State(
    "channel closed by the broker",
    _sent_behind(
        _joined(_OPENED, _CHANNEL_OPENED, _CHANNEL_FAILED), method(CHANNEL, m.ChannelCloseOk())
    ),
    CHANNEL,
)
CONNECTION_CLOSING = State("connection closing", _joined(_OPENED, _CONNECTION_FAILED), 0, (_LEAVE,))
CHANNEL_OF_CLOSING = CONNECTION_CLOSING._replace(
    name="connection closing, on a channel", channel=CHANNEL
)
LEFT = State(
    "connection closed by the client",
    (_OPENED, (method(0, m.ConnectionClose(200, "done")), Answer(0, ""))),
    0,
    ends_output=True,
)

RUNNING = (
    CHANNEL_0,
    NOT_OPEN,
    OPEN_CHANNEL,
    CONFIRMS,
    TRANSACTIONS,
    HEADER_EXPECTED,
    BODY_EXPECTED,
    CHANNEL_CLOSING,
    CLOSED_BY_CLIENT,
    CLOSED_BY_BROKER,
    CONNECTION_CLOSING,
    CHANNEL_OF_CLOSING,
    LEFT,
)
WITH_QUEUE = (OPEN_CHANNEL, CONFIRMS, TRANSACTIONS)
NO_HEADER = State("protocol header expected", (), 0)

_REMAINING: dict[State, tuple[m.Method, ...]] = {
    HANDSHAKE[0]: (START_OK, TUNE_OK, OPEN),
    HANDSHAKE[1]: (TUNE_OK, OPEN),
    HANDSHAKE[2]: (OPEN,),
}

# ── cases ─────────────────────────────────────────────────────────────────────────────────────────────────


class Case(NamedTuple):
    """Bytes in a state, and the probe that follows them."""

    state: State
    what: str
    sent: bytes
    probe: tuple[tuple[bytes, Answer], ...]
    late: str = ""  # an answer that has to be waited for, too

    @property
    def name(self) -> str:
        return f"{self.state.name}: {self.what}"


def cases() -> list[Case]:
    return [*_methods_in_states(), *_malformed_methods(), *_frames_in_states(), *_openings()]


def _case(
    state: State, what: str, sent: bytes, of: type[m.Method] | None = None, *, channel: int = -1
) -> Case:
    """The case with the probe of its state, or one that its method allows."""
    probe, late = state.probe, ""
    if state in _REMAINING:
        rest = [each for each in _REMAINING[state] if channel or type(each) is not of]
        # connection.open-ok is the only answer that comes last on either way.
        ending = [_step(method(0, each), "") for each in rest[:-1]]
        probe = (*ending, *(_step(method(0, each), "connection.open-ok") for each in rest[-1:]))
        if of is m.ConnectionOpen and not rest:
            probe = (_step(b"", "connection.open-ok"),)
    elif of is m.ConnectionClose and state is CHANNEL_0:
        probe = (_step(b"", "connection.close-ok"),)
    elif of is m.ConnectionCloseOk and state is CONNECTION_CLOSING:
        probe = ()
    elif of in ENDS_CHANNEL and state in WITH_QUEUE:
        answer = "channel.close-ok" if of is m.ChannelClose else "connection.close"
        probe = (_USABLE, _step(b"", answer, CHANNEL))
    elif of is m.ChannelCloseOk and state is CHANNEL_CLOSING:
        probe = (_USABLE,)
    elif of is m.ChannelOpen and state in (NOT_OPEN, CLOSED_BY_CLIENT, CLOSED_BY_BROKER):
        probe = (_QOS,)
    elif of is m.BasicQos:
        probe = tuple(_FLOW if each is _QOS else each for each in probe)
    if state in WITH_QUEUE and of is not None:
        late = LATE_ANSWERS.get(of, "")
    return Case(state, what, sent, probe, late)


def _methods_in_states() -> Iterator[Case]:
    for of in m.METHODS.values():
        sent = example(of)
        for state in HANDSHAKE:
            yield _case(state, of.name, method(0, sent), of, channel=0)
        for state in HANDSHAKE:
            what = f"{of.name} on channel {CHANNEL}"
            yield _case(state, what, method(CHANNEL, sent), of, channel=CHANNEL)
        for state in RUNNING:
            sent = example(of) if state in WITH_QUEUE else named(of)
            content = of.has_content and state.completes_content and state.channel
            data = method(state.channel, sent) + (content_header(state.channel) if content else b"")
            yield _case(state, of.name, data, of)
        yield _case(NO_HEADER, of.name, method(0, sent), of)
        if of.has_content:
            what = f"{of.name} without content"
            yield Case(NOT_OPEN, what, method(CHANNEL, sent), (_USABLE,))
    for of in _COMMANDS_OF_QUEUES:
        yield _case(NOT_OPEN, f"{of.name} of the last queue", method(CHANNEL, example(of)), of)


def _malformed_methods() -> Iterator[Case]:
    for of in m.METHODS.values():
        payload = encode_method(example(of))
        home = CHANNEL_0 if of.class_id == 10 else OPEN_CHANNEL
        away = NOT_OPEN if of.class_id == 10 else CHANNEL_0
        malformed = {"with trailing byte": payload + b"\0"}
        if len(payload) > 4:
            malformed["without last byte"] = payload[:-1]
        everywhere = (
            home,
            away,
            HEADER_EXPECTED,
            CHANNEL_CLOSING,
            CONNECTION_CLOSING,
            HANDSHAKE[2],
        )
        for how, data in malformed.items():
            for state in everywhere:
                number = state.channel
                yield _case(state, f"{of.name} {how}", frame(METHOD, number, data))
        if len(payload) > 5:
            cut = frame(METHOD, home.channel, payload[:4])
            yield _case(home, f"{of.name} without arguments", cut)
            cut = frame(METHOD, home.channel, payload[: 4 + (len(payload) - 4) // 2])
            yield _case(home, f"{of.name} with half of its arguments", cut)
        for field, kind in of.__annotations__.items():
            if kind is m.ShortStr and field in of.__struct_fields__:
                marked = msgspec.structs.replace(example(of), **{field: "~~~~"})
                data = encode_method(marked).replace(b"~~~~", b"\xff\xfe\xff\xfe")
                sent = frame(METHOD, home.channel, data)
                yield _case(home, f"{of.name} with {field} that is not UTF-8", sent)
        if "arguments" in of.__struct_fields__:
            for how, table in BAD_TABLES.items():
                data = payload[: -len(EMPTY_TABLE)] + struct.pack(">I", len(table)) + table
                yield _case(home, f"{of.name} with {how}", frame(METHOD, home.channel, data))


EMPTY_TABLE = bytes(4)
BAD_TABLES = {
    "an unknown field type": b"\x01kZ",
    "a field name beyond the table": b"\x09k",
    "a string beyond the table": b"\x01kS\x00\x00\x00\x09k",
    "a table beyond the table": b"\x01kF\x00\x00\x00\x09",
    "an array beyond the table": b"\x01kA\x00\x00\x00\x09",
    "an unknown type in an array": b"\x01kA\x00\x00\x00\x01Z",
    "a field without a value": b"\x01k",
}


def _raw_frames(number: int) -> dict[str, bytes]:
    """Frames that are wrong by themselves, or where they are sent, for a channel."""
    unknown = {
        f"class {ids[0]} method {ids[1]}": frame(METHOD, number, struct.pack(">HH", *ids))
        for ids in ((0, 0), (10, 99), (20, 99), (60, 99), (99, 10), (65535, 65535))
    }
    types = {
        f"frame type {kind}": frame(kind, number, b"what") for kind in (0, 4, 5, 6, 7, 9, 65, 255)
    }
    empty = {
        f"empty frame of type {kind}": frame(kind, number, b"")
        for kind in (METHOD, HEADER, BODY, 9)
    }
    return {
        **{f"unknown {key}": data for key, data in unknown.items()},
        **types,
        **empty,
        "method frame of 2 bytes": frame(METHOD, number, b"\x00\x14"),
        "heartbeat": frame(HEARTBEAT, number, b""),
        "heartbeat with payload": frame(HEARTBEAT, number, b"x"),
        "content header": content_header(number, 0),
        "content header of class 10": content_header(number, 0, class_id=10),
        "content header of class 0": content_header(number, 0, class_id=0),
        "content header with weight": content_header(number, 0, weight=1),
        "content header of 11 bytes": frame(HEADER, number, bytes((0, 60)) + bytes(9)),
        "content header without flags": content_header(number, 0, properties=b""),
        "content header with half of the flags": content_header(number, 0, properties=b"\0"),
        "content header with a cut property": content_header(number, 0, properties=b"\x80\0\x05k"),
        "content header with trailing bytes": content_header(number, 0, properties=b"\0\0k"),
        "content header with unknown flag": content_header(number, 0, properties=b"\x00\x02"),
        "content header with continued flags": content_header(number, 0, properties=b"\x00\x01"),
        "content header with a bad table": content_header(
            number, 0, properties=b"\x20\0\0\0\0\x03\x01kZ"
        ),
        "content header of a body": content_header(number, 3),
        "content header of 2^64 - 1 bytes": content_header(number, 2**64 - 1),
        "part of a body": frame(BODY, number, b"b"),
        "whole body": frame(BODY, number, bytes(BODY_SIZE)),
        "body that is too long": frame(BODY, number, bytes(BODY_SIZE + 1)),
        "frame with a wrong end": frame(METHOD, number, encode_method(m.BasicQos()), end=0),
        "frame whose size is too small": frame(METHOD, number, encode_method(m.BasicQos()), size=5),
        "frame whose size is too large": frame(
            METHOD, number, encode_method(m.BasicQos()) + bytes(20), size=12
        ),
        "frame above frame_max": frame(BODY, number, b"", size=FRAME_MAX + 1),
        "frame of 4 GiB": frame(METHOD, number, b"", size=2**32 - 1),
    }


def _frames_in_states() -> Iterator[Case]:
    for number in (0, CHANNEL):
        for what, data in _raw_frames(number).items():
            for state in HANDSHAKE:
                yield _case(state, f"{what} on channel {number}", data, channel=number)
    for state in (CONNECTION_CLOSING, CHANNEL_OF_CLOSING, CHANNEL_0):
        for what, data in _raw_frames(state.channel).items():
            yield _case(state, what, data)
    for state in (NOT_OPEN, OPEN_CHANNEL, HEADER_EXPECTED, BODY_EXPECTED, CHANNEL_CLOSING):
        for what, data in _raw_frames(CHANNEL).items():
            case = _case(state, what, data)
            completes = what.startswith("content header") and what not in _ANNOUNCE_A_BODY
            if (state is HEADER_EXPECTED and completes) or (
                state is BODY_EXPECTED and what == "whole body"
            ):
                case = case._replace(probe=_READY)  # the message is handled by the channel
            yield case


_ANNOUNCE_A_BODY = ("content header of a body", "content header of 2^64 - 1 bytes")


def _openings() -> Iterator[Case]:
    """Protocol headers, logins and limits."""
    headers = {
        "AMQP 0-9": b"AMQP\x01\x01\x00\x09",
        "AMQP 0-8": b"AMQP\x01\x01\x08\x00",
        "AMQP 0-8 of py-amqplib": b"AMQP\x01\x01\x09\x01",
        "AMQP 1.0": b"AMQP\x00\x01\x00\x00",
        "AMQP 1.0 with SASL": b"AMQP\x03\x01\x00\x00",
        "AMQP 0-10": b"AMQP\x01\x01\x00\x0a",
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
        "zeros": bytes(8),
    }
    for what, data in headers.items():
        yield Case(NO_HEADER, what, data, (_step(b"", "connection.start"),))
    start, tune, opening = HANDSHAKE
    silent: FieldTable = {"capabilities": {}}
    logins = {
        "an unknown mechanism": m.ConnectionStartOk({}, "MAGIC", b""),
        "a mechanism that is not offered": m.ConnectionStartOk({}, "EXTERNAL", b""),
        "a wrong password": m.ConnectionStartOk(
            START_OK.client_properties, response=b"\0guest\0no"
        ),
        "a wrong password, untold": m.ConnectionStartOk(silent, response=b"\0guest\0no"),
        "an empty PLAIN response": m.ConnectionStartOk({}, response=b""),
        "a PLAIN response with two parts": m.ConnectionStartOk({}, response=b"\0guest"),
        "an AMQPLAIN response without password": m.ConnectionStartOk(
            {}, "AMQPLAIN", b"\x05LOGINS\x00\x00\x00\x05guest"
        ),
        "a malformed AMQPLAIN response": m.ConnectionStartOk({}, "AMQPLAIN", b"\x05LOG"),
        "a frame of 4,000 bytes": m.ConnectionStartOk(
            {"k": "x" * 3900}, response=START_OK.response
        ),
        "a frame of 4,200 bytes": m.ConnectionStartOk(
            {"k": "x" * 4200}, response=START_OK.response
        ),
        "a frame of 9,000 bytes": m.ConnectionStartOk(
            {"k": "x" * 9000}, response=START_OK.response
        ),
    }
    for what, login in logins.items():
        yield _case(
            start, f"start-ok with {what}", method(0, login), m.ConnectionStartOk, channel=0
        )
    for limits in (
        m.ConnectionTuneOk(0, FRAME_MAX, 0),
        m.ConnectionTuneOk(2047, 0, 0),
        m.ConnectionTuneOk(2048, FRAME_MAX, 0),
        m.ConnectionTuneOk(2047, FRAME_MAX + 1, 0),
        m.ConnectionTuneOk(2047, 4095, 0),
        m.ConnectionTuneOk(2047, 4096, 0),
        m.ConnectionTuneOk(1, 4096, 0),
    ):
        what = f"tune-ok(channel_max={limits.channel_max}, frame_max={limits.frame_max})"
        yield _case(tune, what, method(0, limits), m.ConnectionTuneOk, channel=0)
    for vhost in ("no-such-vhost", ""):
        data = method(0, m.ConnectionOpen(vhost))
        yield _case(opening, f"vhost {vhost!r}", data, m.ConnectionOpen, channel=0)


# ── outcomes ──────────────────────────────────────────────────────────────────────────────────────────────

Outcome = tuple[str, ...]


async def outcomes(server: Server, all_cases: Sequence[Case]) -> dict[str, Outcome]:
    """What the broker does in each case, by the case's name."""
    places = asyncio.Semaphore(CONNECTIONS)

    async def one(case: Case) -> tuple[str, Outcome]:
        async with places:
            return case.name, await _outcome(server, case)

    found = dict(await asyncio.gather(*map(one, all_cases)))
    assert len(found) == len(all_cases), "two cases have one name"
    return found


async def _outcome(server: Server, case: Case) -> Outcome:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    conversation = _Conversation(reader, writer)
    try:
        await asyncio.wait_for(conversation.run(case), DEADLINE_S)
    except TimeoutError:
        return (*conversation.told, "silent")
    finally:
        writer.transport.abort()
    return (*conversation.told, "ended" if conversation.ended else "usable")


class _Conversation:
    """One connection to a broker, for one case."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.told: list[str] = []
        self.ended = False
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()

    async def run(self, case: Case) -> None:
        unsent = b""
        for sent, answer in case.state.steps:
            unsent += sent
            if answer.name:
                self._writer.write(unsent)
                unsent = b""
                await self._await_step(answer)
                if self.ended:
                    self.told.append(f"no {answer} on the way to the state")
                    return
        self._writer.write(unsent + case.sent + b"".join(sent for sent, _ in case.probe))
        await self._await_outcome(case)

    async def _await_step(self, answer: Answer) -> None:
        while answer not in await self._receive() and not self.ended:
            pass

    async def _await_outcome(self, case: Case) -> None:
        """Until the probe is answered, or the channel or the connection is closed."""
        probes = [answer for sent, answer in case.probe if sent and answer.name]
        awaited = [answer for _, answer in case.probe if answer.name]
        if case.late:
            awaited.append(Answer(CHANNEL, case.late))
        while not self.ended:
            for answer in await self._receive():
                key = Answer(answer.channel, answer.name)
                if key in awaited:
                    awaited.remove(key)
                if key not in probes:
                    self.told.append(str(answer))
                if answer.name == "channel.close":
                    awaited = [each for each in awaited if each.channel != answer.channel]
                elif answer.name == "connection.close-ok" and case.state.ends_output:
                    with suppress(OSError):  # the broker has closed the socket
                        self._writer.write_eof()
                elif answer.name == "connection.close":
                    self._writer.write(method(0, m.ConnectionCloseOk()))
                    await self._await_end()
            if not awaited and (case.probe or "channel.close" in " ".join(self.told)):
                return

    async def _await_end(self) -> None:
        while not self.ended:
            await self._receive()

    async def _receive(self) -> list[Answer]:
        data = b""
        with suppress(ConnectionError):
            data = await self._reader.read(65536)
        self.ended = not data
        return self._decoder.feed(data)
