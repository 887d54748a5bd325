"""Valid conversations of a client with a broker, frame by frame, before mutation.

A conversation uses a few channels, each with its own task, and the frames of the channels are interleaved as by
a client with threads. Delivery tags are guessed: a client that consumes its own messages can know them. Most
requests are valid, because an error closes a channel, and nothing is learned from the frames that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bench.fuzz import values
from recado.amqp import methods as m
from recado.amqp.frames import (
    BASIC_CLASS_ID,
    BODY_FRAME_TYPE,
    CONTENT_HEADER_START,
    HEADER_FRAME_TYPE,
    HEARTBEAT_FRAME,
    encode_frame,
    encode_method_frame,
)

LARGEST_BODY_FRAME: Final = 4088  # for the smallest frame-max that a client may ask for


class Talk:
    """The frames of one channel, in the making."""

    def __init__(self, rng: Random, channel: int) -> None:
        self.rng = rng
        self.channel = channel
        self.frames: list[bytes] = []
        self.outstanding: list[int] = []
        self.last_tag = 0
        self.say(m.ChannelOpen())

    def say(self, *methods: m.Method) -> None:
        self.frames += [encode_method_frame(self.channel, method) for method in methods]

    def begin_anew(self) -> None:
        """On the same channel, whether the broker has closed it meanwhile or not."""
        self.say(m.ChannelClose(200, "bye"), m.ChannelCloseOk(), m.ChannelOpen())
        self.outstanding.clear()
        self.last_tag = 0

    def bit(self, likely: float = 0.5) -> bool:
        return self.rng.random() < likely

    def delivered(self) -> None:
        """The broker has probably delivered something here."""
        self.last_tag += 1
        self.outstanding.append(self.last_tag)

    def tag(self, *, multiple: bool) -> int:
        """A tag that is probably outstanding, and is not any more."""
        if not self.outstanding or self.bit(0.03):
            return self.rng.choice((0, 1, 2, 20, 2**64 - 1))
        place = self.rng.randrange(len(self.outstanding))
        tag = self.outstanding[place]
        del self.outstanding[0 if multiple else place : place + 1]
        return tag

    def get(self, queue: str) -> m.BasicGet:
        no_ack = self.bit(0.3)
        if no_ack:
            self.last_tag += 1
        else:
            self.delivered()
        return m.BasicGet(queue, no_ack)

    def settle(self) -> m.Method:
        multiple = self.bit(0.2)
        tag = self.tag(multiple=multiple)
        match self.rng.randrange(3):
            case 0:
                return m.BasicAck(tag, multiple)
            case 1:
                return m.BasicNack(tag, multiple, self.bit())
            case _:
                return m.BasicReject(tag, self.bit())

    def publish(self, exchange: str, key: str) -> None:
        """A message: its method, its header and its body, of as many frames as it needs or more."""
        rng = self.rng
        body = values.body(rng)
        properties = values.properties(rng)
        piece = rng.choice((1, 7)) if len(body) <= 16 and self.bit(0.1) else LARGEST_BODY_FRAME
        start = CONTENT_HEADER_START.pack(
            HEADER_FRAME_TYPE, self.channel, 12 + len(properties), 60, 0, len(body)
        )
        self.say(m.BasicPublish(exchange, key, self.bit(0.2), self.bit(0.005)))
        self.frames.append(start + properties + b"\xce")
        self.frames += [
            encode_frame(BODY_FRAME_TYPE, self.channel, body[at : at + piece])
            for at in range(0, len(body), piece)
        ]


# ── subjects ────────────────────────────────────────────────────────────────────────────────────


def declare(talk: Talk) -> None:
    """Exchanges, queues and bindings of every kind, and their end."""
    rng, bit = talk.rng, talk.bit
    for _ in range(rng.randrange(1, 4)):
        exchange, queue = values.name(rng), values.name(rng)
        alternate: m.Table = {"alternate-exchange": values.source(rng)} if bit(0.05) else {}
        kind = values.kind_of(exchange) if bit(0.95) else rng.choice((*values.KINDS, "x-none"))
        talk.say(
            m.ExchangeDeclare(
                exchange, kind, bit(0.05), False, False, bit(0.05), bit(0.1), alternate
            ),
            m.QueueDelete(queue, no_wait=True),
            m.QueueDeclare(
                queue, bit(0.1), False, bit(0.3), bit(0.2), bit(0.1), values.queue_arguments(rng)
            ),
            m.QueueBind(
                queue, values.source(rng), values.key(rng), bit(0.1), values.binding_arguments(rng)
            ),
            m.QueueBind("", exchange, values.key(rng)),
        )
        if bit(0.3):
            other = values.name(rng)
            talk.say(
                m.ExchangeBind(other, exchange, values.key(rng), bit(0.1)),
                m.ExchangeBind(exchange, other, values.key(rng)),
            )
    if bit(0.3):
        name, source, key = values.name(rng), values.source(rng), values.key(rng)
        talk.say(m.QueueUnbind(name, source, key), m.ExchangeUnbind(name, source, key))
    if bit(0.4):
        talk.say(
            m.QueuePurge(values.name(rng)),
            m.QueueDelete(values.name(rng), bit(0.2), bit(0.2), bit(0.1)),
            m.ExchangeDelete(values.name(rng), bit(0.2), bit(0.1)),
        )


def publish(talk: Talk) -> None:
    """Messages, mostly of few sorts in a row, as publishers send them; perhaps confirmed."""
    rng = talk.rng
    if talk.bit():
        talk.say(m.ConfirmSelect(talk.bit(0.2)))
    if talk.bit(0.2):
        talk.say(m.BasicConsume(values.DIRECT_REPLY, "", no_ack=talk.bit(0.9)))
    for _ in range(rng.randrange(1, 4)):
        exchange = values.source(rng)
        key = values.key(rng) if exchange else values.name(rng)
        if talk.bit():
            start = len(talk.frames)
            talk.publish(exchange, key)
            if len(talk.frames) - start <= 3:
                talk.frames += talk.frames[start:] * rng.randrange(8)
        else:
            for _ in range(rng.randrange(1, 6)):
                talk.publish(exchange, key)


def consume(talk: Talk) -> None:
    """A queue of its own or a shared one, with messages, and all methods for it."""
    rng, bit = talk.rng, talk.bit
    queue = "" if bit() else values.name(rng)
    if queue:
        talk.say(m.QueueDelete(queue, no_wait=True))
    talk.say(
        m.QueueDeclare(queue, False, False, not queue, False, False, values.queue_arguments(rng)),
        m.QueueBind("", "amq.direct", f"own-{talk.channel}"),
        m.BasicQos(0, rng.choice((0, 0, 1, 3, 65535)), bit(0.2)),
    )
    for tag in rng.sample(("", "t1", "t2", values.LONG_NAME), k=rng.randrange(3)):
        tapping = bit(0.1)
        arguments: m.Table = {"x-wire-tap": True} if tapping else {}
        if bit(0.2):
            arguments["x-priority"] = rng.choice((-1, 0, 7))
        no_ack = tapping or bit(0.3)
        talk.say(m.BasicConsume("", tag, False, no_ack, bit(0.05), bit(0.1), arguments))
    for _ in range(rng.randrange(6)):
        talk.publish("amq.direct", f"own-{talk.channel}")
        talk.delivered()
    for _ in range(rng.randrange(8)):
        talk.say(talk.settle() if bit(0.6) else rng.choice(QUESTIONS)(talk))
    if bit(0.3):
        talk.say(m.BasicCancel(rng.choice(("t1", "t2", "none")), bit(0.2)))


QUESTIONS: Final[tuple[Callable[[Talk], m.Method], ...]] = (
    lambda talk: talk.get(""),
    lambda talk: talk.get(""),
    lambda talk: talk.get(values.name(talk.rng)),
    lambda talk: m.BasicRecover(talk.bit(0.98)),
    lambda talk: m.BasicRecoverAsync(talk.bit(0.98)),
    lambda talk: m.QueuePurge(""),
)


def transact(talk: Talk) -> None:
    """The same in a transaction."""
    talk.say(m.TxSelect())
    for _ in range(talk.rng.randrange(3)):
        talk.publish("", values.name(talk.rng))
    consume(talk)
    talk.say(talk.rng.choice((m.TxCommit(), m.TxCommit(), m.TxRollback(), m.TxSelect())))
    talk.say(*(talk.settle() for _ in range(talk.rng.randrange(4))), m.TxCommit())


def acknowledge(talk: Talk) -> None:
    """Many small messages, and acks in any order."""
    rng = talk.rng
    count = rng.randrange(1, 12)
    talk.say(
        m.QueueDeclare("", exclusive=True),
        m.QueueBind("", "amq.direct", f"own-{talk.channel}"),
        m.BasicConsume("", f"many-{talk.last_tag}", no_ack=False),
    )
    start = len(talk.frames)
    talk.publish("amq.direct", f"own-{talk.channel}")
    talk.frames += talk.frames[start:] * (count - 1)
    first = talk.last_tag + 1
    talk.last_tag += count
    tags = list(range(first, first + count))
    if talk.bit():
        rng.shuffle(tags)
    talk.say(*(m.BasicAck(tag, talk.bit(0.02)) for tag in tags))


def bother(talk: Talk) -> None:
    """Rare methods, methods that only a server sends, and invalid ones."""
    rng, channel = talk.rng, talk.channel
    methods: list[m.Method] = [
        m.ChannelFlow(talk.bit(0.8)),
        m.AccessRequest(),
        m.BasicQos(rng.choice((0, 0, 1)), 5, False),
        m.BasicCancelOk("t"),
        m.ChannelCloseOk(),
        m.ChannelOpen(),
        m.ConnectionUpdateSecret(b"secret", "why"),
        m.BasicDeliver("t", 1, False, "", "fuzz-0"),
        m.QueueDeclareOk("fuzz-0", 1, 1),
        m.ChannelClose(200, "bye"),
    ]
    talk.say(*rng.sample(methods, k=rng.randrange(1, 4)))
    raw = rng.choice((values.deep_table, values.wide_table))(rng.choice((1, 16, 17, 100, 1100)))
    declare_raw = b"\x00\x32\x00\x0a\x00\x00\x06fuzz-0\x00" + raw
    header = (
        CONTENT_HEADER_START.pack(HEADER_FRAME_TYPE, channel, 14 + len(raw), BASIC_CLASS_ID, 0, 0)
        + b"\x20\x00"
    )
    talk.frames += rng.choice(
        (
            [encode_frame(1, channel, declare_raw)],
            [encode_method_frame(channel, m.BasicPublish("", "fuzz-0")), header + raw + b"\xce"],
            [encode_frame(1, channel, rng.randbytes(rng.randrange(30)))],
            [encode_frame(rng.randrange(256), channel, rng.randbytes(4))],
            [HEARTBEAT_FRAME],
        )
    )


SUBJECTS: Final = (declare, publish, publish, consume, consume, transact, acknowledge, bother)


def conversation(rng: Random) -> list[bytes]:
    """Return the frames after a handshake: of one to four channels, interleaved."""
    channels = rng.sample(range(1, 17), k=rng.choice((1, 1, 1, 2, 3)))
    talks = []
    for channel in channels:
        talk = Talk(rng, channel)
        rng.choice(SUBJECTS)(talk)
        for _ in range(rng.randrange(3)):
            if talk.bit(0.8):
                talk.begin_anew()
            rng.choice(SUBJECTS)(talk)
        if talk.bit(0.3):
            talk.say(m.ChannelClose(200, "bye"))
        talks.append(talk.frames)
    frames = interleaved(rng, talks)
    if rng.random() < 0.3:
        # Nothing should follow it, but sometimes something does.
        place = len(frames) - rng.choice((0, 0, 0, 1, 5))
        frames.insert(place, encode_method_frame(0, m.ConnectionClose(200, "bye")))
    return frames


def interleaved(rng: Random, queues: list[list[bytes]]) -> list[bytes]:
    """Interleave the frames, preserving the order in each channel, in bursts."""
    waiting = [iter(frames) for frames in queues]
    mixed: list[bytes] = []
    while waiting:
        turn = rng.choice(waiting)
        for _ in range(rng.randrange(1, 12)):
            each = next(turn, None)
            if each is None:
                waiting.remove(turn)
                break
            mixed.append(each)
    return mixed
