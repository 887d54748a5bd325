"""The itinerary of a message is checked, because any program could have written it."""

from __future__ import annotations

from typing import Any

import pytest

from recado.patterns.destination import PointToPoint
from recado.patterns.errors import CompositionError, RejectMessageError
from recado.patterns.message import Message
from recado.patterns.routing import (
    ROUTING_SLIP_HEADER,
    RoutingSlip,
    attach_routing_slip,
    routing_slip_of,
)
from recado.patterns.step import Send


def follow(step: RoutingSlip, message: Message[Any]) -> Any:
    (output,) = step.process(message)
    return output


def test_a_message_visits_its_stops_once() -> None:
    step = RoutingSlip("check", "price", "ship", plan=lambda message: message.body)
    message = Message(body=["check", "ship"])
    first = follow(step, message)
    assert first.to == PointToPoint("check")
    assert routing_slip_of(first.message) == ["ship"]
    second = follow(step, first.message)
    assert second.to == PointToPoint("ship")
    assert follow(step, second.message) == message  # it continues, and is not planned again
    assert list(step.destinations()) == [*map(PointToPoint, ("check", "price", "ship"))]


def test_the_producer_may_attach_the_slip() -> None:
    step = RoutingSlip("check")
    plain = Message(body=1)
    assert follow(step, plain) == plain
    sent = follow(step, attach_routing_slip(plain, ["check"]))
    assert isinstance(sent, Send)
    assert sent.to == PointToPoint("check")


@pytest.mark.parametrize(
    ("slip", "reason"),
    [
        (["secret"], "'secret' is not an allowed destination"),
        (["check", "secret"], "'secret' is not an allowed destination"),
        ("check", "not a list of names"),
        ([b"check"], "not a list of names"),
        (["check"] * 33, "33 stops, at most 32"),
    ],
)
def test_wrong_slips_are_rejected(slip: Any, reason: str) -> None:
    with pytest.raises(RejectMessageError, match=reason):
        RoutingSlip("check").process(Message(body=1, headers={ROUTING_SLIP_HEADER: slip}))


def test_a_plan_is_checked_too() -> None:
    with pytest.raises(RejectMessageError, match="'secret' is not an allowed destination"):
        RoutingSlip("check", plan=lambda message: ["secret"]).process(Message(body=1))
    with pytest.raises(RejectMessageError, match="34 stops"):
        RoutingSlip("check", plan=lambda message: ["check"] * 35).process(Message(body=1))
    with pytest.raises(RejectMessageError, match="40 stops"):
        attach_routing_slip(Message(body=1), ["check"] * 40)
    with pytest.raises(CompositionError, match="needs the destinations"):
        RoutingSlip()
