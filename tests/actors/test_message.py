"""Messages are immutable or copied."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NewType

import msgspec
import pytest

from recado.actors import ActorRef, Message
from recado.actors.message import is_immutable, isolate

OrderId = NewType("OrderId", int)


class Side(enum.Enum):
    BID = 1


class Order(msgspec.Struct, frozen=True):
    id: OrderId
    side: Side
    price: Decimal
    tags: tuple[str, ...] = ()
    before: Order | None = None


class Draft(msgspec.Struct):
    text: str


@dataclass(frozen=True)
class Point:
    x: Annotated[float, "metres"]
    kind: Literal["a", "b"] = "a"


@dataclass
class Pen:
    colour: str


class Place(Message[Order]):
    order: Order
    by: ActorRef[Any] | None = None


class Send(Message[None]):
    draft: Draft


class Gather(Message[None]):
    names: list[str]


class Hold(Message[None]):
    by_reference: ClassVar[bool] = True

    names: list[str]


@pytest.mark.parametrize(
    "kind", [Order, Place, Point, Side, int, Hold, tuple[int, ...], frozenset[str]]
)
def test_immutable(kind: type) -> None:
    assert is_immutable(kind)


@pytest.mark.parametrize(
    "kind", [Draft, Pen, Send, Gather, list[int], tuple[list[int], ...], Any, object]
)
def test_not_immutable(kind: type) -> None:
    assert not is_immutable(kind)


def test_what_is_immutable_is_sent_as_it_is() -> None:
    place = Place(Order(OrderId(1), Side.BID, Decimal(3)))
    assert isolate(place) is place
    assert isolate(place) is place
    assert isolate("text") is not None


def test_what_is_not_is_copied_to_the_bottom() -> None:  # MG1
    gather = Gather(["a"])
    copy = isolate(gather)
    gather.names.append("b")
    assert copy == Gather(["a"])
    draft = Draft("x")
    assert isolate((1, draft)) == (1, draft)
    assert isolate((1, draft))[1] is not draft


def test_who_asks_for_it_shares() -> None:
    hold = Hold(["a"])
    assert isolate(hold) is hold


def test_messages_do_not_change() -> None:
    place = Place(Order(OrderId(1), Side.BID, Decimal(3)))
    with pytest.raises(AttributeError):
        place.order = place.order  # type: ignore[misc]
    assert hash(place) == hash(Place(place.order))
    match place:
        case Place(Order(id=number)):
            assert number == 1
