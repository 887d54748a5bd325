"""Runs do not change behaviour: a broker that handles messages one at a time does the same.

The same bytes, in any chunking, go to a broker whose runs are limited to 1 and to one without limit, which
also coalesces single messages of several connections, while consumers, prefetch, time, limits, bindings and permissions
change. RECADO_EXAMPLES sets the number of examples.
"""

import os
from collections.abc import Iterator
from itertools import cycle, islice, zip_longest

import pytest
from hypothesis import HealthCheck, given, settings

from recado.amqp import methods as m
from recado.amqp.frames import FRAME_OVERHEAD_BYTES, FRAME_START, encode_method_frame
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.amqp.values import FieldTable
from recado.broker import dead_letter

from . import scenario as s
from .client import EVERYTHING, publishing
from .paired_brokers import PairedBrokers, Talk

EXAMPLES = int(os.environ.get("RECADO_EXAMPLES", "250"))


@pytest.fixture(scope="module", autouse=True)
def no_dead_letter_waits() -> Iterator[None]:
    """Of many dead letters at once some come a turn later, and singles are more work than runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letter, "DEAD_LETTERS_PER_TURN", 1 << 30)
        yield


class Performance:
    """A scenario played to both brokers."""

    def __init__(self, queues: tuple[s.Declare, ...]) -> None:
        self.pair = PairedBrokers(1, 1 << 30)
        for connection in s.CONNECTIONS:
            self.pair.connect(connection)
        methods: list[m.Method] = [
            m.ExchangeDeclare(name, kind, arguments=s.EXCHANGE_ARGUMENTS.get(name, {}))
            for name, kind in s.EXCHANGES.items()
        ]
        methods += (m.QueueBind(queue, "f") for queue in s.QUEUES[:2])
        methods += (m.ExchangeBind("d", "t", "k.l"), m.ExchangeBind("h", "t", "k"))
        methods += (m.QueueBind("q0", "u"), m.ExchangeBind("u", "t", "k.*"))
        for queue in queues:
            self._send(0, self._frames(0, 1, queue))
        self._send(0, [encode_method_frame(1, method) for method in methods])
        self.pair.compare()

    def _send(self, connection: int, frames: list[bytes]) -> None:
        self.pair.feed(connection, b"".join(frames), ((), ()))

    def play(self, step: s.Step) -> None:
        pair = self.pair
        match step:
            case s.Wait(milliseconds, tick):
                pair.wait(milliseconds, tick=tick)
            case s.Permit(which):
                pair.permit(s.PERMISSIONS[which])
            case s.Reconnect(connection):
                pair.reconnect(connection)
            case s.Batch():
                self._play_batch(step)
            case s.Answer(which, settle, sizes):
                holders = [place for place, talk in pair.talks.items() if talk.outstanding]
                if holders:
                    connection, channel = holders[which % len(holders)]
                    self._play_batch(s.Batch(connection, ((channel, settle),), sizes=sizes))
        if not (isinstance(step, s.Batch) and step.more):
            self._end_turn()

    def _end_turn(self) -> None:
        pair = self.pair
        pair.compare()
        for connection in s.CONNECTIONS:
            if pair.has_ended(connection):
                pair.reconnect(connection)
                pair.compare()

    def _play_batch(self, batch: s.Batch) -> None:
        lines: dict[int, list[bytes]] = {}
        said: list[bytes] = []
        for channel, command in batch.commands:
            frames = self._frames(batch.connection, channel, command)
            lines.setdefault(channel, []).extend(frames)
            said += frames
        if batch.woven:
            said = [each for pair in zip_longest(*lines.values(), fillvalue=b"") for each in pair]
        data = self.pair.held[batch.connection] + b"".join(said)
        now, later = data[: len(data) - batch.held], data[len(data) - batch.held :]
        if batch.held > len(data):
            now, later = b"", data
        self.pair.held[batch.connection] = later
        self.pair.feed(batch.connection, now, batch.sizes)

    def finish(self) -> None:
        """The queues contain the same messages, in the same order."""
        self.pair.permit(EVERYTHING)
        self.pair.connect(-1)
        for name, queue in self.pair.queues().items():
            gets = [encode_method_frame(1, m.BasicGet(name, True))] * (queue.ready + 1)
            self.pair.talks[-1, 1].gets += [True] * len(gets)
            self._send(-1, gets)
        self.pair.compare()

    # ── commands as frames ────────────────────────────────────────────────────────────────────────────

    def _frames(self, connection: int, channel: int, command: s.Command) -> list[bytes]:
        talk = self.pair.talks[connection, channel]
        methods: list[m.Method] = []
        if talk.closed:
            self.pair.talks[connection, channel] = talk = Talk()
            methods += (m.ChannelCloseOk(), m.ChannelOpen())
        if isinstance(command, s.Publish):
            frames = list(self._publish(connection, channel, talk, command))
        else:
            frames = []
            methods += self._methods(talk, command)
        return [encode_method_frame(channel, method) for method in methods] + frames

    def _publish(
        self, connection: int, channel: int, talk: Talk, command: s.Publish
    ) -> Iterator[bytes]:
        patterns = cycle(command.keys), cycle(command.kinds), cycle(command.sizes)
        for key, kind, size in islice(zip(*patterns, strict=True), command.amount):
            body = f"{self.pair.number():08}".encode().ljust(size, b".")[:size]
            if talk.confirming:
                talk.published += 1
                if size >= 8:
                    self.pair.tags[connection][channel, body] = talk.published
            data = publishing(
                channel,
                key,
                body,
                s.PROPERTIES[kind],
                exchange=command.exchange,
                mandatory=command.mandatory,
                frame_max=13 if command.pieces else s.FRAME_MAX[connection],
            )
            yield from _single_frames(data)

    def _methods(self, talk: Talk, command: s.Command) -> Iterator[m.Method]:
        queue = getattr(command, "queue", None)
        if queue is not None and queue not in self.pair.queues():
            yield m.QueueDeclare(queue)
        match command:
            case s.Consume(queue, no_ack, priority, tap, exclusive):
                tag = f"c{self.pair.number()}"
                talk.consumers.append(tag)
                if no_ack or tap:
                    talk.without_acks.add(tag)
                arguments: FieldTable = {"x-priority": priority} if priority else {}
                if tap:
                    arguments["x-wire-tap"] = True
                yield m.BasicConsume(
                    queue, tag, no_ack=no_ack or tap, exclusive=exclusive, arguments=arguments
                )
            case s.Cancel(which):
                if talk.consumers:
                    yield m.BasicCancel(talk.consumers.pop(which % len(talk.consumers)))
            case s.Qos(prefetch, whole_channel):
                yield m.BasicQos(0, prefetch, whole_channel)
            case s.Settle():
                yield from _settlements(talk, command)
            case s.Get(queue, no_ack):
                talk.gets.append(no_ack)
                yield m.BasicGet(queue, no_ack)
            case s.Declare(queue, auto_delete, settings):
                yield m.QueueDelete(queue)
                wanted: FieldTable = {**dict(settings)}
                durable = "x-queue-type" in wanted  # a quorum queue
                yield m.QueueDeclare(
                    queue, durable=durable, auto_delete=auto_delete, arguments=wanted
                )
            case s.Bind(queue, exchange, key, which, undo):
                arguments = s.BINDING_ARGUMENTS[which] if exchange == "h" else {}
                if undo:
                    yield m.QueueUnbind(queue, exchange, key, arguments)
                else:
                    yield m.QueueBind(queue, exchange, key, arguments=arguments)
            case s.Simple(name, queue):
                yield from _simple(talk, name, queue)
            case s.Publish():
                raise AssertionError("more than methods")


def _single_frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        after = at + FRAME_START.unpack_from(data, at)[2] + FRAME_OVERHEAD_BYTES
        yield data[at:after]
        at = after


def _settlements(talk: Talk, command: s.Settle) -> Iterator[m.Method]:
    at = command.at if command.at < len(talk.outstanding) else 0
    tags = talk.outstanding[at : at + command.amount]
    multiple = command.multiple and command.how != "reject"
    if multiple:
        tags = tags[-1:]
        talk.outstanding = [tag for tag in talk.outstanding if not tags or tag > tags[0]]
    else:
        talk.outstanding = [tag for tag in talk.outstanding if tag not in tags]
    for tag in tags:
        match command.how:
            case "ack":
                yield m.BasicAck(tag, multiple)
            case "nack":
                yield m.BasicNack(tag, multiple, command.requeue)
            case _:
                yield m.BasicReject(tag, command.requeue)


def _simple(talk: Talk, name: str, queue: str) -> Iterator[m.Method]:
    match name:
        case "confirm":
            talk.confirming = True
            yield m.ConfirmSelect()
        case "tx":
            yield m.TxSelect()
        case "commit":
            yield m.TxSelect()
            yield m.TxCommit()
        case "rollback":
            yield m.TxRollback()
        case "recover":
            talk.outstanding.clear()
            yield m.BasicRecover(True)
        case "purge":
            yield m.QueuePurge(queue)
        case "delete":
            yield m.QueueDelete(queue)
        case "reopen":
            talk.start_again()
            yield m.ChannelClose()
            yield m.ChannelOpen()
        case "stray ack":
            yield m.BasicAck(7, False)
        case "reply consumer":
            talk.consumers.append(DIRECT_REPLY_TO)
            talk.without_acks.add(DIRECT_REPLY_TO)
            yield m.BasicConsume(DIRECT_REPLY_TO, DIRECT_REPLY_TO, no_ack=True)
        case _:
            raise AssertionError(name)


@pytest.mark.no_cover
@pytest.mark.timeout(max(EXAMPLES, 300))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(s.scenarios())
def test_runs_of_one_and_runs_without_limit_are_the_same(scenario: s.Scenario) -> None:
    performance = Performance(scenario.queues)
    for step in scenario.steps:
        performance.play(step)
    performance.finish()
