"""Random frames, valid and damaged: events do not depend on how the bytes are split (ARD1)."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.amqp.events import Event, HeartbeatReceived, MethodReceived
from recado.amqp.frames import HEARTBEAT_FRAME, encode_method_frame
from recado.amqp.methods import BasicAck, ChannelFlow, Method, QueueDeclare
from recado.amqp.reader import FrameReader

from .traffic import (
    FRAME_MAX,
    PUBLISHES,
    TO_CLIENTS,
    Message,
    apart,
    bytewise,
    messages,
    read,
)

CHANNELS = st.sampled_from((1, 1, 2, 3))
OTHERS: tuple[Method, ...] = (QueueDeclare("q"), ChannelFlow(), BasicAck(7, True))


class WireMachine(RuleBasedStateMachine):
    """Frames on three channels, read by readers that get them in different pieces.

    ARD1: each has read exactly the frames that have arrived completely.
    """

    def __init__(self) -> None:
        super().__init__()
        self.under_way: dict[int, tuple[list[bytes], object]] = {}
        self.written = self.arrived = 0
        self.wire = b""
        self.meaning: list[tuple[int, object]] = []
        self.readers = {
            "as it comes": FrameReader(frame_max=FRAME_MAX),
            "byte by byte": FrameReader(frame_max=FRAME_MAX),
            "in runs of one": FrameReader(frame_max=FRAME_MAX, run_limit=1),
            "in runs of three": FrameReader(frame_max=FRAME_MAX, run_limit=3),
        }
        self.read: dict[str, list[Event]] = {name: [] for name in self.readers}

    def _write(self, data: bytes, meaning: object = None) -> None:
        self.wire += data
        self.written += len(data)
        if meaning is not None:
            self.meaning.append((self.written, meaning))

    @rule(channel=CHANNELS, message=messages(PUBLISHES), count=st.sampled_from((1, 2, 3, 20, 90)))
    def publish(self, channel: int, message: Message, count: int) -> None:
        if channel not in self.under_way:
            for _ in range(count if len(message.body) < 100 else 2):
                self._write(b"".join(message.frames(channel)), message.read_on(channel))

    @rule(channel=CHANNELS, message=messages(PUBLISHES + TO_CLIENTS))
    def begin(self, channel: int, message: Message) -> None:
        if channel not in self.under_way:
            method, *rest = message.frames(channel)
            self._write(method)
            self.under_way[channel] = (rest, message.read_on(channel))

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 2), count=st.sampled_from((1, 2, 9)))
    def go_on(self, which: int, count: int) -> None:
        channel = list(self.under_way)[which % len(self.under_way)]
        rest, meaning = self.under_way[channel]
        for data in rest[:count]:
            self._write(data)
        del rest[:count]
        if not rest:
            self.meaning.append((self.written, meaning))
            del self.under_way[channel]

    @rule(
        channel=CHANNELS,
        first=st.sampled_from((0, 1, 250, 2**64 - 3)),
        count=st.sampled_from((1, 2, 3, 90)),
    )
    def acknowledge(self, channel: int, first: int, count: int) -> None:
        if channel not in self.under_way:
            for tag in range(first, min(first + count, 2**64)):
                self._write(
                    encode_method_frame(channel, BasicAck(tag, False)), ("ack", channel, tag)
                )

    @rule(channel=CHANNELS, method=st.sampled_from(OTHERS))
    def say(self, channel: int, method: Method) -> None:
        if channel not in self.under_way:
            self._write(encode_method_frame(channel, method), MethodReceived(channel, method))

    @rule()
    def beat(self) -> None:
        self._write(HEARTBEAT_FRAME, HeartbeatReceived())

    @rule(size=st.sampled_from((1, 7, 8, 20, 60, 1000, 1 << 20)))
    def transfer(self, size: int) -> None:
        data, self.wire = self.wire[:size], self.wire[size:]
        self.arrived += len(data)
        for name, reader in self.readers.items():
            for chunk in bytewise([data]) if name == "byte by byte" else (data,):
                self.read[name] += reader.feed(chunk)

    @invariant()
    def all_have_read_what_has_arrived(self) -> None:
        meaning = [each for at, each in self.meaning if at <= self.arrived]
        for name, events in self.read.items():
            assert apart(events) == meaning, name

    def teardown(self) -> None:
        self.transfer(len(self.wire))
        self.all_have_read_what_has_arrived()
        for reader in self.readers.values():
            assert reader.has_partial_messages is bool(self.under_way)


TestWireMachine = WireMachine.TestCase
TestWireMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# ── bad bytes ─────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Frames of which some are damaged, most of them near their beginning, where it matters."""
    frames: list[bytearray] = []
    channel = draw(CHANNELS)
    for _ in range(draw(st.integers(1, 4))):
        what = draw(st.integers(0, 5))
        if what < 4:
            message = draw(messages(PUBLISHES))
            count = draw(st.sampled_from((1, 2, 20))) if len(message.body) < 100 else 1
            frames += map(bytearray, message.frames(channel) * count)
        elif what == 4:
            acks = (encode_method_frame(channel, BasicAck(tag, False)) for tag in range(1, 20))
            frames += map(bytearray, acks)
        else:
            channel = draw(CHANNELS)
            frames.append(bytearray(encode_method_frame(channel, draw(st.sampled_from(OTHERS)))))
    for _ in range(draw(st.integers(0, 2))):
        victim = draw(st.sampled_from(frames))
        at = draw(st.integers(0, min(len(victim), 32) - 1) | st.just(len(victim) - 1))
        match draw(st.sampled_from(("change", "change", "change", "lose", "add"))):
            case "change":
                victim[at] = draw(st.sampled_from((0, 1, 2, 3, 60, 128, 255)))
            case "lose":
                del victim[at]
            case _:
                victim.insert(at, draw(st.integers(0, 255)))
    return b"".join(frames)


@settings(max_examples=400)
@given(damaged(), st.integers(1, 100))
def test_the_same_is_read_before_an_error(data: bytes, size: int) -> None:
    one_by_one = read(FrameReader(frame_max=FRAME_MAX), bytewise([data]))
    cut = [data[i : i + size] for i in range(0, len(data), size)]
    assert read(FrameReader(frame_max=FRAME_MAX), [data]) == one_by_one
    assert read(FrameReader(frame_max=FRAME_MAX), cut) == one_by_one
    assert read(FrameReader(frame_max=FRAME_MAX, run_limit=1), [data]) == one_by_one
