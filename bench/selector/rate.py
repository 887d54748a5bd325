"""Evaluations per second of typical selectors, on messages of which a third match.

The peer is simpleeval 1.0, with its expression parsed in advance, on the same values. The time is processor
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simpleeval import EvalWithCompoundTypes

from bench.book import Book
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from recado.selector import compile_predicate, parse

SECONDS: Final = 1.0
QUICK_S: Final = 0.3
MESSAGES: Final = 300


@dataclass(slots=True)
class Message:
    priority: int
    routing_key: str
    headers: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Subject:
    scenario: Scenario
    selector: str
    peer: str
    """The same for simpleeval."""


def subject(name: str, title: str, selector: str, peer: str) -> Subject:
    scenario = Scenario(name, title, "evaluations/s", Comparison.AT_LEAST, peer="simpleeval")
    return Subject(scenario, selector, peer)


SUBJECTS: Final = (
    subject(
        "evaluations",
        "properties and a header",
        "priority >= 3 AND key LIKE 'orders.%' AND headers.region IN ('eu', 'us')",
        "priority >= 3 and key[:7] == 'orders.' and headers['region'] in ('eu', 'us')",
    ),
    subject(
        "evaluations-body",
        "a word in a text of 200 B",
        "body LIKE '%carro%' AND NOT body LIKE '%derrota%'",
        "'carro' in text and not 'derrota' in text",
    ),
    subject(
        "evaluations-json",
        "fields of a JSON body of 200 B",
        "json.price * 1.1 > 20 AND json.symbol = 'PETR4'",
        "json['price'] * 1.1 > 20 and json['symbol'] == 'PETR4'",
    ),
)
SCENARIOS: Final = tuple(each.scenario for each in SUBJECTS)


def messages() -> list[Message]:
    found = []
    for i in range(MESSAGES):
        word = ("carro", "casa", "carro e derrota")[i % 3]
        text = f'{{"symbol": "PETR{i % 5}", "price": {i % 40 + 0.25}, "note": "um {word} {"x" * 140}"}}'
        key = ("orders.new", "orders.paid", "stock.low")[i % 3]
        found.append(Message(i % 6, key, {"region": ("eu", "br")[i % 2]}, text.encode()))
    return found


def run(plan: Plan, book: Book) -> Iterator[str]:
    seconds = QUICK_S if plan.quick else SECONDS
    asked = messages()
    for each in SUBJECTS:
        name = each.scenario.name
        if not plan.wants(name):
            continue
        wants = compile_predicate(parse(each.selector))
        names = [values_of(message) for message in asked]
        peer = peer_of(each.peer)
        for _ in range(plan.rounds):
            book.enter(name, Side.RECADO, Sample(rate(wants, asked, seconds)))
            if plan.with_peer:
                book.enter(name, Side.PEER, Sample(rate(peer, names, seconds)))
        yield name


def values_of(message: Message) -> dict[str, Any]:
    """Return the names for simpleeval; it cannot read JSON, so that is decoded in advance."""
    import json

    return {
        "priority": message.priority,
        "key": message.routing_key,
        "headers": message.headers,
        "text": message.body.decode(),
        "json": json.loads(message.body),
    }


def peer_of(expression: str) -> Callable[[dict[str, Any]], object]:
    evaluator = EvalWithCompoundTypes()
    parsed = evaluator.parse(expression)

    def wants(names: dict[str, Any]) -> object:
        evaluator.names = names
        return evaluator.eval(expression, previously_parsed=parsed)

    return wants


def rate(wants: Callable[[Any], object], asked: Sequence[object], seconds: float) -> float:
    """Return the number of evaluations per second of processor time."""
    rounds = 0
    begun = time.process_time()
    while (taken := time.process_time() - begun) < seconds:
        for message in asked:
            wants(message)
        rounds += 1
    return rounds * len(asked) / taken
