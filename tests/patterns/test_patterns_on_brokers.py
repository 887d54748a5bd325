"""The patterns whose examples in the catalogue need no broker, as flows on recado and on RabbitMQ.

`tests/docs/test_patterns.py` compares: every pattern of the catalogue has a case here, or an example with a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import msgspec

from recado.patterns import (
    AnyFlowStep,
    CanonicalModel,
    ClaimCheck,
    ClaimRedeem,
    ContentEnricher,
    ContentFilter,
    ContentRouter,
    Detour,
    EnvelopeUnwrapper,
    EnvelopeWrapper,
    Filter,
    MemoryClaimStore,
    Message,
    MessageHistory,
    Messaging,
    Normaliser,
    Recipient,
    RecipientList,
    RoutingSlip,
    Splitter,
    history_of,
    sequence_of,
)
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from workshop.peers import Server

Name = Callable[[str], str]


class Order(msgspec.Struct):
    id: int
    due: date = date(2027, 1, 15)


class Case(msgspec.Struct):
    """Flows in a row, what enters the first one, and what arrives where."""

    flows: Sequence[Sequence[AnyFlowStep]]
    sent: Sequence[Message[Any]]
    arrives: dict[str, list[Any]]
    read: Callable[[Message[Any]], Any] = lambda message: message.body
    body_type: Any = Any


def _message(body: Any, **properties: Any) -> Message[Any]:
    return Message(body=body, **properties)


def _properties(message: Message[Any]) -> object:
    return message.body, message.headers.get("colour"), message.priority, message.type


def _open(detour: Detour) -> Detour:
    detour.open = True
    return detour


def make_cases(name: Name) -> dict[str, Case]:
    """Return the cases by pattern; `end` is where messages arrive that reach the end of the last flow."""
    store = MemoryClaimStore()
    first, second = name("first"), name("second")
    order = {"id": 7, "due": "2027-01-15"}
    return {
        "Messaging": Case([()], [_message("hello")], {"end": ["hello"]}),
        "Message": Case(
            [()],
            [_message(1, headers={"colour": "red"}, priority=5, type="order")],
            {"end": [(1, "red", 5, "order")]},
            _properties,
        ),
        "Message Translator": Case(
            [()],
            [
                _message(order, content_type=f"application/{kind}")
                for kind in ("json", "msgpack", "yaml")
            ],
            {"end": [order] * 3},
        ),
        "Messaging Mapper": Case(
            [(ContentEnricher(lambda message: message.with_body(message.body.due.year)),)],
            [_message(Order(7))],
            {"end": [2027]},
            body_type=Order,
        ),
        "Message Sequence": Case(
            [(Splitter(lambda body: body),)],
            [_message(["a", "b"], message_id="whole")],
            {"end": [("whole", 1, 2), ("whole", 2, 2)]},
            lambda message: msgspec.structs.astuple(sequence_of(message)),  # type: ignore[arg-type]
        ),
        "Content-Based Router": Case(
            [(ContentRouter({"json.total > 100": first}),)],
            [_message({"total": 500}), _message({"total": 5})],
            {first: [{"total": 500}], "end": [{"total": 5}]},
        ),
        "Message Filter": Case(
            [(Filter("json.total > 100", otherwise=first),)],
            [_message({"total": 500}), _message({"total": 5})],
            {"end": [{"total": 500}], first: [{"total": 5}]},
        ),
        "Recipient List": Case(
            [(RecipientList(first, Recipient(second, "json.total > 100")),)],
            [_message({"total": 500}), _message({"total": 5})],
            {first: [{"total": 500}, {"total": 5}], second: [{"total": 500}]},
        ),
        "Splitter": Case(
            [(Splitter(lambda body: body["lines"]),)],
            [_message({"lines": ["pen", "ink"]})],
            {"end": ["pen", "ink"]},
        ),
        "Routing Slip": Case(
            [(RoutingSlip(first, second, plan=lambda message: [second]),)],
            [_message(1)],
            {second: [1]},
        ),
        "Envelope Wrapper": Case(
            [(EnvelopeWrapper(),), (EnvelopeUnwrapper(),)],
            [_message(1, headers={"colour": "red"}, priority=5, type="order")],
            {"end": [(1, "red", 5, "order")]},
            _properties,
        ),
        "Content Enricher": Case(
            [(ContentEnricher(lambda message: message.with_headers(colour="red")),)],
            [_message(1)],
            {"end": ["red"]},
            lambda message: message.headers["colour"],
        ),
        "Content Filter": Case(
            [(ContentFilter(keep=["id"]),)], [_message(order)], {"end": [{"id": 7}]}
        ),
        "Claim Check": Case(
            [(ClaimCheck(store, threshold_bytes=100),), (ClaimRedeem(store, str),)],
            [_message("x" * 1000), _message("short")],
            {"end": ["x" * 1000, "short"]},
        ),
        "Normalizer": Case(
            [(Normaliser(Order, formats={"application/json": lambda body: Order(body["ID"])}),)],
            [_message({"ID": 7}, content_type="application/json")],
            {"end": [order]},
        ),
        "Canonical Data Model": Case(
            [(CanonicalModel(Order),)], [_message({"id": 7})], {"end": [order]}
        ),
        "Detour": Case(
            [(_open(Detour(first, "json.total > 100")),)],
            [_message({"total": 500}), _message({"total": 5})],
            {first: [{"total": 500}], "end": [{"total": 5}]},
        ),
        "Message History": Case(
            [(MessageHistory("gateway"),), (MessageHistory("check"),)],
            [_message(1)],
            {"end": [["gateway", "check"]]},
            lambda message: [entry.component for entry in history_of(message)],
        ),
    }


@in_a_loop
async def test_each_pattern_without_a_broker_in_its_example(server: Server, name: Name) -> None:
    app = Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"))
    seen = Collected()
    expected: list[tuple[str, str, Any]] = []
    sent: dict[str, Sequence[Message[Any]]] = {}
    patterns = list(make_cases(lambda stem: stem))
    for pattern in patterns:
        prefix = name(pattern)
        case = make_cases(lambda stem, prefix=prefix: f"{prefix} {stem}")[pattern]  # type: ignore[misc]
        queues = [f"{prefix} in {number}" for number in range(len(case.flows))]
        end = f"{prefix} end"
        for queue, following, steps in zip(queues, [*queues[1:], end], case.flows, strict=True):
            app.flow(queue, *steps, to=following, body_type=case.body_type)
        sent[queues[0]] = case.sent
        for stem, values in case.arrives.items():
            queue = end if stem == "end" else stem
            expected += [(pattern, queue, value) for value in values]
            app.subscribe(queue, tag=queue)(make_handler(seen, pattern, queue, case))
    async with app:
        for source, messages in sent.items():
            await app.publish_many(source, messages)
        found: Any = await seen.wait(len(expected))
        async with app.consume(app.dead_letter) as dead:
            assert dead is None
    for pattern in patterns:
        assert [each for each in sorted(found, key=str) if each[0] == pattern] == [
            each for each in sorted(expected, key=str) if each[0] == pattern
        ]


def make_handler(
    seen: Collected, pattern: str, queue: str, case: Case
) -> Callable[[Message[Any]], Any]:
    async def handle(message: Message[Any]) -> None:
        seen.add((pattern, queue, case.read(message)))

    return handle
