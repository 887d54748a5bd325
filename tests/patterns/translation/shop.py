"""Types of messages, one for each way to declare them."""

import enum
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(msgspec.Struct):
    name: str
    amount: int = 1


class Order(msgspec.Struct):
    id: UUID
    placed: datetime
    total: Decimal
    items: list[Item]
    colour: Colour = Colour.RED
    note: str | None = None
    weight: float = 0.0
    express: bool = False


class StrictOrder(msgspec.Struct, forbid_unknown_fields=True):
    id: int


@dataclass
class DataclassOrder:
    id: int
    items: list[Item] = field(default_factory=list)


class TypedDictOrder(TypedDict):
    id: int
    names: list[str]


@attrs.define
class AttrsOrder:
    id: int
    items: list[Item] = attrs.field(factory=list)


class PydanticItem(pydantic.BaseModel):
    name: str
    amount: int = 1


class PydanticOrder(pydantic.BaseModel):
    id: UUID
    placed: datetime
    total: Decimal
    items: list[PydanticItem] = []


class Basket(msgspec.Struct):
    """A model of pydantic within a struct."""

    order: PydanticOrder
