"""Exchanges, queues and bindings in any order of commands, against a list of bindings.

The model has no index: routing scans every binding, a topic is matched as the specification defines it, and
the entities to delete are found by scanning the remaining ones.
"""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from recado.amqp.errors import NotFoundError, PreconditionFailedError
from recado.amqp.values import FieldTable
from recado.broker.background_work import BackgroundWork
from recado.broker.binding import DEAD_LETTER_BINDING_ARGUMENT
from recado.broker.route_search import depends_on_headers, find_queues
from recado.broker.steps import run_to_completion
from recado.broker.vhost import Vhost

from .stand_ins import StandInQueue
from .test_topic import naive, words

EXCHANGES = ("x0", "x1", "x2")
QUEUES = ("q0", "q1", "q2")
AE = "alternate-exchange"
KINDS = ("direct", "fanout", "topic", "headers", "regex")
KEYS = ("", "a", "b", "a.b")
BINDING_KEYS = ("", "a", "a.b", "#", "*", "#.#.b", "a|b")
NO_REGEX = ("*",)
HEADERS: tuple[FieldTable, ...] = ({}, {"h": 1}, {"h": 2, "i": 1})
ARGUMENTS: tuple[FieldTable, ...] = (
    {},
    {DEAD_LETTER_BINDING_ARGUMENT: True},
    {"h": 1},
    {"h": None, "x-i": 1, DEAD_LETTER_BINDING_ARGUMENT: True},
    {"h": 1, "i": 1, "x-match": "any"},
)


class ModelExchange(NamedTuple):
    kind: str
    auto_delete: bool
    alternate: str | None


class ModelBinding(NamedTuple):
    source: str
    destination: str
    key: str
    arguments: FieldTable


class Model:
    def __init__(self) -> None:
        self.exchanges: dict[str, ModelExchange] = {}
        self.queues: set[str] = set()
        self.bindings: list[ModelBinding] = []

    def exists(self, name: str) -> bool:
        return name in self.exchanges or name in self.queues

    def matches(self, binding: ModelBinding, key: str, headers: FieldTable) -> bool:
        match self.exchanges[binding.source].kind:
            case "direct":
                return binding.key == key
            case "fanout":
                return True
            case "topic":
                return naive(words(binding.key), words(key))
            case "regex":
                return re.fullmatch(binding.key, key) is not None
            case _:
                asked = {k: v for k, v in binding.arguments.items() if not k.startswith("x-")}
                met = [k in headers and v in (None, headers[k]) for k, v in asked.items()]
                return any(met) if binding.arguments.get("x-match") == "any" else all(met)

    def destinations(self, exchange: str, keys: tuple[str, ...], headers: FieldTable) -> list[str]:
        matched = [
            binding
            for binding in self.bindings
            if binding.source == exchange
            and any(self.matches(binding, key, headers) for key in keys)
        ]
        ordinary = [b for b in matched if not b.arguments.get(DEAD_LETTER_BINDING_ARGUMENT)]
        if matched:
            return [binding.destination for binding in ordinary or matched]
        alternate = self.exchanges[exchange].alternate
        return [alternate] if alternate in self.exchanges else []

    def route(self, exchange: str, keys: tuple[str, ...], headers: FieldTable) -> list[str]:
        seen, ahead = [exchange], [exchange]
        while ahead:
            for name in self.destinations(ahead.pop(0), keys, headers):
                if name not in seen:
                    seen.append(name)
                    if name in self.exchanges:
                        ahead.append(name)
        return [name for name in seen if name in self.queues]

    def reaches_headers(self, exchange: str) -> bool:
        reached = {exchange}
        for _ in self.exchanges:
            reached |= {b.destination for b in self.bindings if b.source in reached}
            reached |= {
                self.exchanges[name].alternate or "" for name in reached & {*self.exchanges}
            }
        return any(self.exchanges[x].kind == "headers" for x in reached & {*self.exchanges})

    def remove(self, gone: str) -> None:
        self.queues.discard(gone)
        self.exchanges.pop(gone, None)
        for binding in [b for b in self.bindings if gone in (b.source, b.destination)]:
            self.unbind(binding)

    def unbind(self, binding: ModelBinding) -> None:
        if binding in self.bindings:
            self.bindings.remove(binding)
            source = self.exchanges.get(binding.source)
            left = [b for b in self.bindings if b.source == binding.source]
            if source and source.auto_delete and not left:
                self.remove(binding.source)


exchanges = st.builds(
    ModelExchange, st.sampled_from(KINDS), st.booleans(), st.sampled_from((None, *EXCHANGES))
)
bindings = st.builds(
    ModelBinding,
    st.sampled_from(EXCHANGES),
    st.sampled_from((*EXCHANGES, *QUEUES)),
    st.sampled_from(BINDING_KEYS),
    st.sampled_from(ARGUMENTS),
)


class Topology(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.vhost: Vhost[StandInQueue] = Vhost("/")
        self.seen: tuple[int, list[list[str]]] = (-1, [])

    @initialize(wanted=st.tuples(*[exchanges] * len(EXCHANGES)))
    def begin_with_something(self, wanted: tuple[ModelExchange, ...]) -> None:
        for name, exchange in zip(EXCHANGES, wanted, strict=True):
            self.declare_exchange(name, exchange)
        for name in QUEUES:
            self.toggle_queue(name)

    @rule(name=st.sampled_from(EXCHANGES), wanted=exchanges)
    def declare_exchange(self, name: str, wanted: ModelExchange) -> None:
        arguments: FieldTable = {} if wanted.alternate is None else {AE: wanted.alternate}
        equivalent = self.model.exchanges.setdefault(name, wanted) == wanted
        with nullcontext() if equivalent else pytest.raises(PreconditionFailedError):
            self.vhost.declare_exchange(
                name, wanted.kind, auto_delete=wanted.auto_delete, arguments=arguments
            )

    @rule(name=st.sampled_from(EXCHANGES), wanted=exchanges)
    def replace_exchange(self, name: str, wanted: ModelExchange) -> None:
        self.delete_exchange(name, if_unused=False)
        self.declare_exchange(name, wanted)

    @rule(name=st.sampled_from(EXCHANGES), if_unused=st.booleans())
    def delete_exchange(self, name: str, if_unused: bool) -> None:
        if if_unused and any(binding.source == name for binding in self.model.bindings):
            with pytest.raises(PreconditionFailedError):
                self.vhost.delete_exchange(name, if_unused=True)
        else:
            self.vhost.delete_exchange(name, if_unused=if_unused)
            self.model.remove(name)

    @rule(name=st.sampled_from(QUEUES))
    def toggle_queue(self, name: str) -> None:
        if name in self.model.queues:
            queue = self.vhost.find_queue(name)
            queue.deleted = True
            self.vhost.remove_queue(queue)
            self.model.remove(name)
        else:
            self.vhost.add_queue(StandInQueue(name))
            self.model.queues.add(name)

    @rule()
    def replace_queues(self) -> None:
        for name in QUEUES:
            if name in self.model.queues:
                self.toggle_queue(name)
        for name in QUEUES:
            self.toggle_queue(name)

    @rule(bindings=st.lists(bindings, min_size=1, max_size=4))
    def bind(self, bindings: list[ModelBinding]) -> None:
        for binding in bindings:
            source = self.model.exchanges.get(binding.source)
            if source is None or not self.model.exists(binding.destination):
                with pytest.raises(NotFoundError):
                    self._bind(binding)
            elif source.kind == "regex" and binding.key in NO_REGEX:
                with pytest.raises(PreconditionFailedError):
                    self._bind(binding)
            else:
                self._bind(binding)
                if binding not in self.model.bindings:
                    self.model.bindings.append(binding)

    def _bind(self, binding: ModelBinding) -> None:
        source, destination, key, arguments = binding
        if destination in QUEUES:
            self.vhost.bind_queue(destination, source, key, arguments)
        else:
            self.vhost.bind_exchange(destination, source, key, arguments)

    @rule(binding=bindings)
    def unbind(self, binding: ModelBinding) -> None:
        source, destination, key, arguments = binding
        if destination in QUEUES:
            self.vhost.unbind_queue(destination, source, key, arguments)
        else:
            self.vhost.unbind_exchange(destination, source, key, arguments)
        self.model.unbind(binding)

    @rule(data=st.data())
    def unbind_something(self, data: st.DataObject) -> None:
        if self.model.bindings:
            self.unbind(data.draw(st.sampled_from(self.model.bindings)))

    @invariant()
    def same_things(self) -> None:
        assert self.vhost.queues.keys() == self.model.queues
        ours = {name for name in self.vhost.exchanges if name and not name.startswith("amq.")}
        assert ours == self.model.exchanges.keys()
        self.vhost.check()

    @invariant()
    def same_routes(self) -> None:
        routes = list(self._routes())
        epoch, before = self.seen
        assert epoch != self.vhost.epoch or before == routes, "VH3"
        self.seen = self.vhost.epoch, routes

    def _routes(self) -> Iterator[list[str]]:
        for name in self.model.exchanges:
            exchange = self.vhost.exchanges[name]
            for keys in ((KEYS[0],), (KEYS[1],), (KEYS[3],), KEYS[1:3]):
                found = [
                    run_to_completion(find_queues(self.vhost, exchange, keys[0], headers, keys[1:]))
                    for headers in HEADERS
                ]
                queues = [[queue.name for queue in routed] for routed in found]
                assert queues == [self.model.route(name, keys, headers) for headers in HEADERS]
                if not run_to_completion(depends_on_headers(self.vhost, exchange)):
                    assert queues[0] == queues[1] == queues[2]
                yield from queues
            assert run_to_completion(
                depends_on_headers(self.vhost, exchange)
            ) == self.model.reaches_headers(name)


Topology.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestTopology = Topology.TestCase


class SlowTopology(Topology):
    """No deletion is completed immediately, and that is not observable."""

    def __init__(self) -> None:
        super().__init__()
        self.vhost = Vhost("/", background=BackgroundWork(first_units_max=0))

    @rule(name=st.sampled_from(EXCHANGES), wanted=exchanges)
    def declare_exchange(self, name: str, wanted: ModelExchange) -> None:
        """Except for auto-delete exchanges: they are deleted when their last binding is removed."""
        super().declare_exchange(name, wanted._replace(auto_delete=False))

    @rule(units=st.integers(1, 4))
    def clean_up(self, units: int) -> None:
        self.vhost.background.advance(units)


SlowTopology.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSlowTopology = SlowTopology.TestCase
