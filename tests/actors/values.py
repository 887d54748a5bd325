"""Values of every serializable type, messages that contain them, and the equality that includes types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple, NewType, TypedDict
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st
from msgspec.structs import astuple

from recado.actors import Actor, ActorError, Message
from recado.actors.remote import register, register_exception
from recado.actors.remote.wire.envelope_pb2 import Metadatum


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Rank(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    """Values that neither MessagePack nor JSON has."""

    LEFT = (0, 1)
    RIGHT = (1, 0)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclasses.dataclass(frozen=True)
class Lot:
    size: int
    price: Decimal


@dataclasses.dataclass
class Basket:
    lots: list[Lot]
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(lot.size for lot in self.lots)


class Tick(msgspec.Struct, frozen=True):
    at: dt.datetime
    price: float


class Node(msgspec.Struct, frozen=True):
    """A struct that contains itself."""

    label: str
    below: tuple[Node, ...] = ()


class Bid(Message[None]):
    price: int


class Ask(Message[None]):
    price: int


class BestBid(Bid):
    """Derived: in a field of the type Bid it must not become one."""

    rank: Rank


class Extra(TypedDict, total=False):
    note: str
    lot: Lot


@register_exception
class OutOfStockError(Exception):
    def __init__(self, item: str, left: Decimal) -> None:
        super().__init__(item, left)
        self.item, self.left = item, left


Price = NewType("Price", Decimal)


class Order(Message[str]):
    """Every type in a field that is declared with it."""

    side: Side
    rank: Rank
    corner: Corner
    rights: Rights
    price: Decimal
    limit: Price
    at: dt.datetime
    day: dt.date
    hour: dt.time
    wait: dt.timedelta
    key: uuid.UUID
    data: bytes
    point: Point
    lot: Lot
    basket: Basket
    tick: Tick | None
    node: Node
    quote: Bid | Ask
    bid: Bid
    ratio: float
    count: int
    tags: frozenset[str]
    pairs: dict[tuple[int, str], Decimal]
    ranks: set[Rank]
    quotes: list[Bid | Ask]
    kind: Literal["a", "b"]
    extra: Extra
    whatever: Any


class Quick(Message[str]):
    """Only types that msgspec writes as they are."""

    number: int
    ratio: float
    text: str
    price: Decimal
    at: dt.datetime
    side: Side | None
    ticks: list[Tick]
    prices: dict[str, Decimal]
    span: tuple[int, dt.timedelta]


class Carry(Message[Any]):
    """A field of the type Any; it is answered by what is in it."""

    value: Any


class Echoing(Actor[Any]):
    """It answers a Carry by what is in it, and everything else by the message itself. `seen` is kept."""

    def __init__(self, seen: list[Any] | None = None) -> None:
        self.seen = [] if seen is None else seen

    def receive(self, message: Any) -> None:
        self.seen.append(message)
        self.reply_if_asked(message.value if isinstance(message, Carry) else message)


for each in (Metadatum, Corner, Rights, Point, Lot, Basket, Tick, Node):
    register(each)

UTC = dt.UTC
ZONES: tuple[dt.tzinfo | None, ...] = (
    None,
    UTC,
    dt.timezone(dt.timedelta(hours=-3)),
    dt.timezone(dt.timedelta(seconds=3723, microseconds=7), "odd"),
    ZoneInfo("America/Sao_Paulo"),
    ZoneInfo("UTC"),
)


def alike(one: Any, other: Any) -> bool:
    """Equal, and so are the types of all parts. Exceptions and NaN are equal to their copies here."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return repr(one) == repr(other)
        case complex():
            return alike(one.real, other.real) and alike(one.imag, other.imag)
        case Decimal():
            return str(one) == str(other)
        case dt.datetime() | dt.time():
            zones = _zone(one.tzinfo), _zone(other.tzinfo)
            plain = one.replace(tzinfo=None), other.replace(tzinfo=None)
            return plain[0] == plain[1] and one.fold == other.fold and zones[0] == zones[1]
        case dt.tzinfo():
            return _zone(one) == _zone(other)
        case list() | tuple():
            return len(one) == len(other) and all(map(alike, one, other))
        case set() | frozenset():
            return one == other and _sorted(one) == _sorted(other)
        case dict():
            return _all_alike(list(one.items()), list(other.items()))
        case BaseException():
            return alike(one.args, other.args) and alike(vars(one), vars(other))
        case msgspec.Struct():
            return alike(astuple(one), astuple(other))
        case _ if dataclasses.is_dataclass(one):
            return alike(vars(one), vars(other))
        case _:
            return bool(one == other)


def _all_alike(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(alike, some, others))


def _sorted(values: Any) -> list[str]:
    return sorted(f"{type(value).__qualname__} {value!r}" for value in values)


def _zone(zone: dt.tzinfo | None) -> object:
    if isinstance(zone, ZoneInfo):
        return zone.key
    return None if zone is None else (zone.utcoffset(None), zone.tzname(None))


# ── strategies ────────────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(codec="utf-8"), max_size=10)
numbers = st.integers() | st.sampled_from([2**63, 2**64, -(2**63) - 1, 2**200, 0])
decimals = st.decimals() | st.sampled_from([Decimal("1.50"), Decimal("-0"), Decimal("sNaN")])
datetimes = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
    st.datetimes(),
    st.sampled_from(ZONES),
    st.integers(0, 1),
)
times = st.builds(
    lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
    st.times(),
    st.sampled_from(ZONES),
    st.integers(0, 1),
)
lots = st.builds(Lot, st.integers(0, 99), decimals.filter(lambda each: not each.is_nan()))
points = st.builds(Point, st.integers(), st.floats(allow_nan=False))
rights = st.builds(
    lambda *each: Rights(sum(each)), *(st.sampled_from([0, each.value]) for each in Rights)
)
ticks = st.builds(Tick, datetimes, st.floats(allow_nan=False) | st.integers(0, 9))
nodes = st.recursive(
    st.builds(Node, texts),
    lambda inner: st.builds(Node, texts, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=5,
)
bids = st.builds(Bid, st.integers()) | st.builds(BestBid, st.integers(), rank=st.sampled_from(Rank))
quotes = bids | st.builds(Ask, st.integers())
errors = (
    st.builds(ValueError, texts)
    | st.builds(KeyError, decimals.filter(lambda each: not each.is_nan()))
    | st.builds(OutOfStockError, texts, st.just(Decimal("2.50")))
    | st.builds(ActorError, texts, texts)
    | st.builds(OSError, st.integers(0, 99), texts, texts)
)
hashables = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    texts,
    st.binary(max_size=10),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.fractions(),
    st.sampled_from([*Side, *Rank, *Corner]),
    rights,
    points,
    quotes,
    lots,
)
leaves = st.one_of(
    hashables,
    st.floats(),
    st.complex_numbers(),
    st.binary(max_size=10).map(bytearray),
    decimals,
    datetimes,
    times,
    st.builds(range, st.integers(-9, 9), st.integers(), st.integers(1, 9)),
    st.sampled_from([zone for zone in ZONES if zone is not None]),
    ticks,
    nodes,
    st.lists(lots, max_size=3).map(Basket),
    st.builds(Metadatum, key=texts, value=texts),
    errors,
    st.just(msgspec.UNSET),
)


def _with_containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=4),
        st.frozensets(hashables, max_size=4),
        st.dictionaries(texts, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
        st.dictionaries(st.tuples(st.integers(), texts), inner, max_size=3),
        st.builds(Carry, inner),
    )


values = st.recursive(leaves, _with_containers, max_leaves=8)

orders = st.builds(
    Order,
    side=st.sampled_from(Side),
    rank=st.sampled_from(Rank),
    corner=st.sampled_from(Corner),
    rights=rights,
    price=decimals,
    limit=decimals,
    at=datetimes,
    day=st.dates(),
    hour=times,
    wait=st.timedeltas(),
    key=st.uuids(),
    data=st.binary(max_size=20),
    point=points,
    lot=lots,
    basket=st.lists(lots, max_size=3).map(Basket),
    tick=st.none() | ticks,
    node=nodes,
    quote=quotes,
    bid=bids,
    ratio=st.floats() | st.integers(0, 9),
    count=numbers | st.booleans() | st.sampled_from(Rank),
    tags=st.frozensets(texts, max_size=3),
    pairs=st.dictionaries(st.tuples(st.integers(), texts), decimals, max_size=3),
    ranks=st.sets(st.sampled_from(Rank)),
    quotes=st.lists(quotes, max_size=3),
    kind=st.sampled_from(["a", "b"]),
    extra=st.sampled_from([{}, {"note": "n"}, {"note": "", "lot": Lot(1, Decimal(2))}]),
    whatever=values,
)

quicks = st.builds(
    Quick,
    number=numbers | st.booleans(),
    ratio=st.floats() | st.integers(),
    text=texts,
    price=decimals,
    at=datetimes,
    side=st.none() | st.sampled_from(Side),
    ticks=st.lists(ticks, max_size=3),
    prices=st.dictionaries(texts, decimals, max_size=3),
    span=st.tuples(st.integers(), st.timedeltas()),
)

# One of each, for tests in which a value is dear.
EXAMPLES: dict[str, Any] = {
    "None": None,
    "bool": True,
    "int": 7,
    "large int": 2**70,
    "float": 1.5,
    "nan": math.nan,
    "complex": 1 + 2j,
    "fraction": Fraction(1, 3),
    "str": "açaí",
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"\x00\xff"),
    "Decimal": Decimal("1.50"),
    "datetime": dt.datetime(2020, 2, 29, 23, 59, 59, 999_999),
    "datetime in UTC": dt.datetime(2020, 1, 1, tzinfo=UTC),
    "datetime with offset": dt.datetime(2020, 1, 1, tzinfo=ZONES[2]),
    "datetime in a zone": dt.datetime(2020, 1, 1, tzinfo=ZONES[4]),
    "date": dt.date(2020, 1, 1),
    "time": dt.time(12, 30, fold=1),
    "timedelta": dt.timedelta(days=-1, microseconds=3),
    "UUID": uuid.UUID(int=5),
    "Enum": Side.SELL,
    "IntEnum": Rank.HIGH,
    "Enum of tuples": Corner.LEFT,
    "Flag": Rights.READ | Rights.RUN,
    "list": [1, Decimal(2), [Side.BUY]],
    "tuple": (1, ("a", Decimal(2))),
    "set": {1, Rank.HIGH, "a"},
    "frozenset": frozenset({Decimal(1), "a"}),
    "dict": {1: "a", (1, 2): Decimal(1), Side.BUY: [Bid(1)], None: {}},
    "dataclass": Lot(1, Decimal("2.50")),
    "dataclass with a list": Basket([Lot(1, Decimal(1))]),
    "NamedTuple": Point(1),
    "struct": Tick(dt.datetime(2020, 1, 1), 2.5),
    "message": BestBid(1, rank=Rank.LOW),
    "exception": OutOfStockError("tea", Decimal("1.50")),
    "protobuf": Metadatum(key="k", value="v"),
}

Arrive = Callable[[Any], Any]
