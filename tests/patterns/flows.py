"""Steps and runtimes for tests of flows."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from recado.patterns.destination import Destination, DestinationLike
from recado.patterns.flow import FlowComposition, FlowOutput, FlowResult, FlowRuntime
from recado.patterns.message import Message
from recado.patterns.publisher import EncodedPublish
from recado.patterns.state import StateStore
from recado.patterns.step import (
    AnyFlowStep,
    FlowStep,
    Outputs,
    Send,
    StatefulStep,
    StateTransaction,
)


class BreakdownError(Exception):
    """A step fails."""


def encode(message: Message[Any], to: Destination) -> EncodedPublish:
    """Encode a body as JSON; the properties are left out."""
    body = json.dumps(message.body).encode()
    return EncodedPublish("", to.name, body, b"", message.message_id or "")


def make_runtime(
    store: StateStore | None,
    *steps: AnyFlowStep,
    name: str = "flow",
    to: DestinationLike | None = "out",
    lease: float = 60.0,
    **options: Any,
) -> FlowRuntime:
    composition = FlowComposition(name, steps)
    return FlowRuntime(composition, encode=encode, to=to, store=store, lease=lease, **options)


def messages(*bodies: Any) -> list[Message[Any]]:
    """Return messages whose ids are their bodies."""
    return [Message(body=body, message_id=f"id-{body}") for body in bodies]


def bodies(outputs: Sequence[FlowOutput]) -> list[Any]:
    return [json.loads(output.publish.body) for output in outputs]


def all_bodies(results: Sequence[FlowResult]) -> list[Any]:
    return [body for result in results for body in bodies(result.outputs)]


def outputs_of(results: Sequence[FlowResult]) -> list[FlowOutput]:
    return [output for result in results for output in result.outputs]


def deadline_of(runtime: FlowRuntime) -> float | None:
    return runtime.next_deadline


class Double(FlowStep):
    """Multiplies a number by two; a text fails."""

    def process(self, message: Message[Any]) -> Outputs:
        if not isinstance(message.body, int):
            raise BreakdownError(f"{message.body!r} is no number")
        return [message.with_body(message.body * 2)]


class AsyncRepeat(FlowStep):
    """Sends a copy elsewhere and passes the message on."""

    async def process(self, message: Message[Any]) -> AsyncIterator[Any]:
        yield Send("copies", message)
        yield message


class Sum(StatefulStep):
    """Adds numbers and yields the sum so far; it is yielded once more after a minute, negated."""

    def __init__(self, table: str = "sum") -> None:
        self.table = table

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        total = int(state.get(self.table, "total") or b"0") + message.body
        state.put(self.table, "total", b"%d" % total, deadline=state.now + 60)
        return [message.with_body(total)]

    def expire(self, state: StateTransaction) -> Outputs:
        for key, value in state.due(self.table, 10):
            state.put(self.table, key, value)
            yield Message(body=-int(value))
