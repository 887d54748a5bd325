"""Filter, content router, regex router, dynamic router, recipient list."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from recado.patterns.destination import PointToPoint, PublishSubscribe
from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.routing import (
    ContentRouter,
    DynamicRouter,
    Filter,
    Recipient,
    RecipientList,
    RegexRouter,
    RoutingRule,
    RuleChange,
    RuleRemoval,
)
from recado.patterns.step import FlowStep, Send


def message(body: Any = None, **fields: Any) -> Message[Any]:
    return Message(body=body, **fields)


def outputs(step: FlowStep, given: Message[Any]) -> list[Any]:
    found = step.process(given)
    assert isinstance(found, list | tuple)
    return list(found)


def sent_to(step: FlowStep, given: Message[Any]) -> list[Any]:
    """The destinations of the outputs, None for a message that continues; every output is the message."""
    found = outputs(step, given)
    assert all((each.message if isinstance(each, Send) else each) is given for each in found)
    return [each.to if isinstance(each, Send) else None for each in found]


def test_filter() -> None:
    step = Filter("priority > 3")
    assert sent_to(step, message(priority=4)) == [None]
    assert sent_to(step, message(priority=3)) == []
    assert list(step.destinations()) == []
    other = Filter(lambda message: message.body == 1, otherwise="rest")
    assert sent_to(other, message(1)) == [None]
    assert sent_to(other, message(2)) == ["rest"]
    assert list(other.destinations()) == ["rest"]


def test_the_first_branch_of_a_content_router_wins() -> None:
    events = PublishSubscribe("events")
    step = ContentRouter(
        {"json.total > 100": "large", lambda message: message.body["total"] > 10: events},
        otherwise="small",
    )
    assert sent_to(step, message({"total": 500})) == ["large"]
    assert sent_to(step, message({"total": 50})) == [events]
    assert sent_to(step, message({"total": 5})) == ["small"]
    assert list(step.destinations()) == ["large", events, "small"]


def test_messages_that_match_no_branch_continue() -> None:
    assert sent_to(ContentRouter({"json.total > 100": "large"}), message({})) == [None]
    assert sent_to(RegexRouter({"a": "a"}), message(key="b")) == [None]
    assert sent_to(RecipientList(Recipient("a", "priority = 1")), message()) == [None]
    assert sent_to(DynamicRouter(), message()) == [None]


def test_regex_router_matches_the_whole_key() -> None:
    step = RegexRouter({r"orders[.](eu|us)": "west", "orders.*": "orders"}, otherwise="rest")
    assert sent_to(step, message(key="orders.eu")) == ["west"]
    assert sent_to(step, message(key="orders.eu.1")) == ["orders"]
    assert sent_to(step, message(key="my.orders.eu")) == ["rest"]
    assert sent_to(step, message(key="\ud800")) == ["rest"]
    assert list(step.destinations()) == ["west", "orders", "rest"]


def test_regex_router_is_bounded() -> None:
    with pytest.raises(CompositionError, match="invalid pattern"):
        RegexRouter({"(": "a"})
    with pytest.raises(CompositionError, match="too complex"):
        RegexRouter({"[^a]{500}": "a"})
    with pytest.raises(CompositionError, match="longer than 1024 bytes"):
        RegexRouter({"a" * 1025: "a"})
    with pytest.raises(CompositionError, match="1001 patterns"):
        RegexRouter({str(number): "a" for number in range(1001)})
    long_key = "a" * 100_000 + "b"
    assert sent_to(RegexRouter({"(a*)*": "a"}), message(key=long_key)) == [None]  # no backtracking


def test_recipients() -> None:
    events = PublishSubscribe("events")
    step = RecipientList(
        "audit",
        Recipient(events, "json.public"),
        Recipient("large", lambda message: message.body["total"] > 10),
        lambda message: message.body.get("to", []),
        PointToPoint("audit"),
    )
    assert sent_to(step, message({"total": 1})) == [PointToPoint("audit")]
    everything = message({"total": 20, "public": True, "to": ["ana", "audit", "events"]})
    assert sent_to(step, everything) == [
        PointToPoint("audit"),
        events,
        PointToPoint("large"),
        PointToPoint("ana"),
        PointToPoint("events"),  # a queue, not the exchange of the same name
    ]
    assert list(step.destinations()) == [
        PointToPoint("audit"), events, PointToPoint("large"), PointToPoint("audit"),
    ]  # fmt: skip


def test_recipients_are_bounded() -> None:
    step = RecipientList(lambda message: map(str, message.body), otherwise="rest", recipients_max=3)
    assert len(outputs(step, message(range(3)))) == 3
    assert sent_to(step, message([])) == ["rest"]
    assert list(step.destinations()) == ["rest"]
    with pytest.raises(RejectMessageError, match="more than 3 recipients"):
        step.process(message(range(10**12)))


def rule(name: str, selector: str, to: str) -> RoutingRule:
    return RoutingRule(name=name, selector=selector, to=to)


def test_rules_change_at_run_time() -> None:
    step = DynamicRouter(otherwise="rest")
    given = message(priority=5)
    assert sent_to(step, given) == ["rest"]
    step.change(rule("urgent", "priority > 3", "urgent"))
    step.change(rule("all", "TRUE = TRUE", "all"))
    assert sent_to(step, given) == ["urgent"]
    step.change(rule("urgent", "priority > 7", "urgent"))  # keeps its place
    assert sent_to(step, given) == ["all"]
    assert [each.name for each in step.rules] == ["urgent", "all"]
    assert sent_to(step, message(priority=8)) == ["urgent"]
    step.change(RuleRemoval(name="all"))
    step.change(RuleRemoval(name="all"))
    assert sent_to(step, given) == ["rest"]


def test_rules_are_control_messages() -> None:
    change = msgspec.json.decode(
        b'{"type": "set", "name": "eu", "selector": "json.region = \'eu\'", "to": "eu"}',
        type=RuleChange,
    )
    assert change == rule("eu", "json.region = 'eu'", "eu")
    removal = msgspec.json.encode(RuleRemoval(name="eu"))
    assert msgspec.json.decode(removal, type=RuleChange) == RuleRemoval(name="eu")


def test_wrong_rules_are_rejected_and_change_nothing() -> None:
    step = DynamicRouter(allowed=["eu", PublishSubscribe("events")], rules_max=2)
    step.change(rule("eu", "priority = 1", "eu"))
    step.change(rule("events", "priority = 2", "events"))
    before = step.rules
    for wrong, reason in (
        (rule("eu", "priority >", "eu"), "routing rule 'eu': invalid selector: line 1"),
        (rule("eu", "priority = 1", "secret"), "'secret' is not an allowed destination"),
        (rule("third", "priority = 1", "eu"), r"already 2 rules \(rules_max\)"),
        (rule("eu", "priority = 1", ""), "not a name of 1 to 255 bytes"),
        (rule("eu", "priority = 1", "é" * 128), "not a name of 1 to 255 bytes"),
    ):
        with pytest.raises(RejectMessageError, match=reason):
            step.change(wrong)
    assert step.rules == before
    assert list(step.destinations()) == [PointToPoint("eu"), PublishSubscribe("events")]
    assert sent_to(step, message(priority=2)) == [PublishSubscribe("events")]
