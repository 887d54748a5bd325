"""Values of every type that travels are read again as they were, in every format (S4)."""

from __future__ import annotations

import datetime as dt
import enum
import re
import socket
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, NewType, TypeAlias, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from recado.actors import ActorRef, ActorSystem, Message
from recado.actors.address import Address
from recado.actors.serialization import tagged_codec as tagged_module
from recado.actors.serialization.class_registry import manifest_of, register
from recado.actors.serialization.declared_types import matches_type
from recado.actors.serialization.errors import (
    InvalidEnvelopeError,
    SerializationError,
    UnacceptableMessageError,
)
from recado.actors.serialization.exception_registry import register_exception
from recado.actors.serialization.instances import FLAG_VALUES_MAX
from recado.actors.serialization.scalars import INTEGER_BITS_MAX
from recado.actors.serialization.serializers import (
    JSON_FORMAT_ID,
    MSGPACK_FORMAT_ID,
    PICKLE_FORMAT_ID,
    TAGGED_JSON_FORMAT_ID,
    TAGGED_MSGPACK_FORMAT_ID,
    Serializers,
)
from recado.actors.serialization.tagged_codec import COLLISIONS_MAX, DEPTH_LEVELS_MAX
from tests.actors import values
from tests.actors.values import (
    EXAMPLES,
    Ask,
    Bid,
    Carry,
    Lot,
    Node,
    Order,
    Rank,
    Rights,
    Side,
    Tick,
    alike,
)

SYSTEM = ActorSystem("test")
REF: ActorRef[Any] = ActorRef(Address("test", "a", 5), None, SYSTEM)  # type: ignore[arg-type]


def write_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise NotImplementedError(type(value).__qualname__)


def read_ref(kind: type, text: object) -> object:
    assert isinstance(text, str)
    return ActorRef(Address.parse(text), None, SYSTEM)  # type: ignore[arg-type]


ALL = {
    "msgpack": Serializers(write_ref, read_ref),
    "json": Serializers(write_ref, read_ref, default="json"),
    "pickle": Serializers(write_ref, read_ref, pickle=True),
}
ALL["pickle"].set_serializer(object, "pickle")
each_serializer = pytest.mark.parametrize("serializers", ALL.values(), ids=ALL)
plain_serializer = pytest.mark.parametrize("name", ["msgpack", "json"])


@each_serializer
@pytest.mark.parametrize("value", EXAMPLES.values(), ids=EXAMPLES)
def test_each_type_by_itself_and_in_a_field_of_any_type(
    serializers: Serializers, value: object
) -> None:
    assert alike(serializers.deserialize(*serializers.serialize(value)), value)
    message = Carry(value)
    assert alike(serializers.deserialize(*serializers.serialize(message)), message)
    answer = serializers.serialize_reply(value, Any)
    assert alike(serializers.deserialize(*answer, Any), value)


@each_serializer
@settings(max_examples=80, deadline=None)
@given(value=values.values)
def test_values_of_all_types(serializers: Serializers, value: object) -> None:
    assert alike(serializers.deserialize(*serializers.serialize(value)), value)


@each_serializer
@settings(max_examples=30, deadline=None)
@given(message=values.orders | values.quicks)
def test_messages_with_fields_of_all_types(serializers: Serializers, message: object) -> None:
    assert alike(serializers.deserialize(*serializers.serialize(message)), message)


DECLARED: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    int: values.numbers | st.booleans() | st.sampled_from(Rank),
    float: st.floats() | st.integers(),
    str: values.texts,
    bytes: st.binary(max_size=9),
    Decimal: values.decimals,
    dt.datetime: values.datetimes,
    dt.time: values.times,
    dt.timedelta: st.timedeltas(),
    Side: st.sampled_from(Side),
    Rights: values.rights,
    Lot: values.lots,
    Bid | Ask: values.quotes,
    int | str | None: st.integers() | st.text(max_size=3) | st.none(),
    Decimal | None: values.decimals | st.none(),
    Tick | None: values.ticks | st.none(),
    Literal["a", 1]: st.sampled_from(["a", 1]),
    list[Tick]: st.lists(values.ticks, max_size=3),
    list[Bid | Ask]: st.lists(values.quotes, max_size=3),
    tuple[int, Decimal]: st.tuples(st.integers(), values.decimals),
    tuple[Side, ...]: st.lists(st.sampled_from(Side), max_size=3).map(tuple),
    set[int]: st.sets(st.integers(), max_size=3),
    frozenset[Rank]: st.frozensets(st.sampled_from(Rank)),
    dict[str, Decimal]: st.dictionaries(values.texts, values.decimals, max_size=3),
    dict[int, list[float]]: st.dictionaries(st.integers(), st.lists(st.floats()), max_size=3),
    dict[Side, Lot]: st.dictionaries(st.sampled_from(Side), values.lots),
    Sequence[int]: st.lists(st.integers()) | st.lists(st.integers()).map(tuple),
    Any: values.values,
    object: values.values,
}


@each_serializer
@pytest.mark.parametrize("declared", DECLARED, ids=str)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_answers_arrive_as_they_were_whatever_is_declared(
    serializers: Serializers, declared: Any, data: st.DataObject
) -> None:
    value = data.draw(DECLARED[declared])
    assert matches_type(value, declared)
    for known in (declared, None):  # the node that answers may not know it
        body = serializers.serialize_reply(value, known)
        assert alike(serializers.deserialize(*body, declared), value)


@each_serializer
def test_references_in_fields_of_any_type(serializers: Serializers) -> None:
    for message in (Carry(REF), Carry([{"a": (REF,)}])):
        assert serializers.deserialize(*serializers.serialize(message)) == message


class Plain(Message[None]):
    number: int
    price: Decimal
    side: Side | None = None
    ticks: tuple[Tick, ...] = ()
    level: Annotated[int, msgspec.Meta(ge=0)] | None = None


@plain_serializer
def test_values_of_exactly_the_declared_types_are_written_without_tags(name: str) -> None:
    serializers, number = ALL[name], {"msgpack": MSGPACK_FORMAT_ID, "json": JSON_FORMAT_ID}[name]
    exact = Plain(1, Decimal(2), Side.BUY, (Tick(dt.datetime(2020, 1, 1), 1.5),), 3)
    assert serializers.serialize(exact)[0] == number
    for other in (
        Plain(True, Decimal(2)),
        Plain(2**64, Decimal(2)),
        Plain(1, Decimal(2), ticks=(Tick(dt.datetime(2020, 1, 1), 1),)),
        Plain(1, Decimal(2), ticks=(Tick(dt.datetime(2020, 1, 1, fold=1), 1.5),)),
    ):
        written = serializers.serialize(other)
        # JSON has integers of any size.
        assert written[0] in (TAGGED_MSGPACK_FORMAT_ID, TAGGED_JSON_FORMAT_ID, JSON_FORMAT_ID)
        assert alike(serializers.deserialize(*written), other)


T = TypeVar("T")
Json: TypeAlias = "dict[str, Json] | list[Json] | str | Decimal | None"
Money = TypeAliasType("Money", Decimal)


class Box(msgspec.Struct, Generic[T], frozen=True):
    content: T
    more: list[T] = []


class Configured(Message[None], rename="camel", omit_defaults=True, kw_only=True):
    first_one: int = 0
    second_one: Decimal | None = None
    third_one: Any = None


class Row(Message[None], array_like=True, tag="row"):
    number: int
    value: Any = None


class Column(Message[None], array_like=True, tag="column"):
    number: int


class Table(Message[None]):
    parts: list[Row | Column]
    cost: Money = Decimal(0)


class Holding(Message[None]):
    numbers: Box[int]
    tree: Json = None
    maybe: int | msgspec.UnsetType = msgspec.UNSET


@register
@dataclass
class Shipping:
    manifest: str = "default"  # a field, and no name of the class


@register
class Kind(enum.StrEnum):
    manifest = "also no name of the class"


@each_serializer
@pytest.mark.parametrize(
    "message",
    [
        Configured(),
        Configured(first_one=1, second_one=Decimal("1.50")),
        Configured(first_one=True, third_one=Configured(second_one=Decimal(0))),
        Table([Row(1), Column(2)]),
        Table([Row(1, Decimal(1)), Column(2)], Decimal(3)),
        Holding(Box(1, [2])),
        Holding(Box(1), {"a": [{"b": Decimal(1)}, None]}, 5),
        Carry(Box(Decimal(1), [Decimal(2)])),
        Carry([Shipping("a"), Kind.manifest]),
    ],
    ids=repr,
)
def test_classes_of_all_sorts(serializers: Serializers, message: object) -> None:
    assert alike(serializers.deserialize(*serializers.serialize(message)), message)


# ── refused when it is sent ───────────────────────────────────────────────────────────────────────────────────


class Unknown:
    pass


class Symbol(str):
    __slots__ = ()


@dataclass
class Unregistered:
    number: int


class NotRegisteredError(Exception):
    pass


class FussyError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


register_exception(FussyError)


@register
@dataclass
class Doubling:
    number: int

    def __post_init__(self) -> None:
        self.number *= 2


@register
@dataclass
class Seeded:
    seed: InitVar[int]
    number: int = 0

    def __post_init__(self, seed: int) -> None:
        self.number = seed


@register
@dataclass
class Cached:
    number: int

    @cached_property
    def square(self) -> int:
        return self.number**2


class Normalised(Message[None]):
    number: int

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "number", self.number + 1)


class Within(Message[None]):
    level: Annotated[int, msgspec.Meta(ge=0)]


class ByReference(Message[None]):
    by_reference: ClassVar[bool] = True
    number: int


class Roomy(Message[None], dict=True):
    number: int

    @cached_property
    def square(self) -> int:
        return self.number**2


# Fields whose names are keywords, as tables and schemas may have them.
Keywords = msgspec.defstruct(
    "Keywords", [("from", int), ("class", str)], bases=(Message,), module=__name__
)


def loop() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


odd = Cached(3)
odd.more = 1  # type: ignore[attr-defined]
extended = Roomy(3)
extended.__dict__["more"] = 1

REFUSED: dict[str, tuple[Any, str]] = {
    "no class that travels": (Carry([1, {"a": Unknown()}]), r"Carry\.value\[1\]\['a'\]: Unknown"),
    "an open socket": (Carry(socket.socket), r"Carry\.value: type"),
    "a subclass of str": (Carry(Symbol("a")), r"Carry\.value: Symbol"),
    "a subclass of dict": (
        Carry(OrderedDict(a=1)),
        r"Carry\.value: OrderedDict has no serializer. Send its content as a serializable type",
    ),
    "a dataclass that is not registered": (
        Carry(Unregistered(1)),
        r"Carry\.value: Unregist.*register",
    ),
    "an exception that is not registered": (
        Carry(NotRegisteredError()),
        r"Carry\.value: .*NotRegistered",
    ),
    "an exception that its args do not make": (Carry(FussyError("a", "b")), r"Carry\.value: Fussy"),
    "a text that is no Unicode": (Carry("\ud800"), r"Carry\.value: .*Unicode"),
    "a list that contains itself": (Carry(loop()), r"Carry\.value.*contains itself"),
    "too deep": (Carry(deep(DEPTH_LEVELS_MAX)), r"Carry\.value.*deeper than"),
    "an integer that is too long": (Carry(1 << INTEGER_BITS_MAX), r"Carry\.value: .*65536 bits"),
    "a time zone of its own": (
        Carry(dt.datetime(2020, 1, 1, tzinfo=type("Zone", (dt.tzinfo,), {})())),
        r"Carry\.value: .*time zone Zone",
    ),
    "__post_init__ changes a field": (Carry(Doubling(1)), r"Carry\.value: .*number"),
    "an InitVar": (Carry(Seeded(1)), r"Carry\.value: Seeded cannot be recreated"),
    "an attribute that is no field": (Carry(odd), r"Carry\.value: the attribute more"),
    "an attribute that is not a field of a message": (extended, r"Roomy: the attribute more"),
    "the same, within": (Carry(extended), r"Carry\.value: the attribute more"),
    "a message that changes its field": (Normalised(1), r"Normalised: __post_init__"),
    "a wrong type": (Bid("1"), r"Bid\.price: the str '1' does not match int"),  # type: ignore[arg-type]
    "a wrong type within": (Carry([Bid(1), Bid(None)]), r"Carry\.value\[1\]\.price: "),  # type: ignore[arg-type]
    "a list for a tuple": (Node("a", [Node("b")]), r"Node\.below: .*list does not match tuple"),  # type: ignore[arg-type]
    "not in the union": (
        Carry(msgspec.structs.replace(Plain(1, Decimal(1)), side=Rank.LOW)),
        r"Carry\.value\.side: ",
    ),
    "not what its type variable means": (
        Holding(Box("a")),  # type: ignore[arg-type]
        r"Holding\.numbers: a value of type Box does not match .*Box\[int\]",
    ),
    "beyond a limit": (Within(-1), r"Within\.level: "),
    "sent by reference": (ByReference(1), "by reference"),
    "by reference, within": (Carry(ByReference(1)), r"Carry\.value: .*by reference"),
}


@plain_serializer
@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_arrive_as_it_was_is_refused_and_the_field_is_named(
    name: str, case: str
) -> None:
    value, reason = REFUSED[case]
    with pytest.raises(SerializationError, match=reason):
        ALL[name].serialize(value)


@plain_serializer
@pytest.mark.parametrize("cls", [Cached, Roomy])
def test_cached_properties_are_left_out(name: str, cls: type[Cached | Roomy]) -> None:
    serializers, cached = ALL[name], cls(3)
    assert cached.square == 9
    assert serializers.deserialize(*serializers.serialize(Carry(cached))) == Carry(cls(3))
    assert serializers.deserialize(*serializers.serialize(cached)) == cls(3)


@plain_serializer
def test_fields_may_be_named_by_keywords(name: str) -> None:
    serializers, message = ALL[name], Keywords(1, "a")
    written = serializers.serialize(message)
    assert written[0] in (MSGPACK_FORMAT_ID, JSON_FORMAT_ID)
    assert serializers.deserialize(*written) == message


def test_annotations_that_cannot_be_resolved_are_told() -> None:
    class Hidden(msgspec.Struct):
        number: int

    class Holds(Message[None]):
        hidden: Hidden

    with pytest.raises(SerializationError, match=r"annotations of .*Holds"):
        ALL["msgpack"].serialize(Holds(Hidden(1)))


def test_a_node_with_pickle_pickles_what_has_no_other_serializer() -> None:
    serializers = Serializers(write_ref, read_ref, pickle=True)
    written = serializers.serialize(Carry(Symbol("a")))
    assert written[0] == PICKLE_FORMAT_ID
    assert alike(serializers.deserialize(*written), Carry(Symbol("a")))
    with pytest.raises(SerializationError):
        serializers.serialize(Carry(lambda: None))


# ── nothing is taken on trust ─────────────────────────────────────────────────────────────────────────────────


def tagged(tree: Any, manifest: str = "") -> Any:
    return ALL["msgpack"].deserialize(
        TAGGED_MSGPACK_FORMAT_ID, manifest, msgspec.msgpack.encode(tree)
    )


BAD: list[Any] = [
    [],
    {},
    b"bytes",
    [1],
    ["nothing"],
    ["list", ["nothing"]],
    ["dict", 1],
    ["dict", ["list"], 1],
    ["set", ["list"]],
    ["decimal", 5],
    ["decimal", "x"],
    ["uuid", "x"],
    ["int", "f" * (INTEGER_BITS_MAX // 2)],
    ["int", 5],
    ["fraction", "1e99999999", 1],
    ["fraction", 1, 0],
    ["bytes", "*"],
    ["datetime", "2020-01-01", 0],
    ["datetime", "x", 0, None],
    ["datetime", "2020-01-01", 5, None],
    ["datetime", "2020-01-01", 0, 5],
    ["zone", "../../etc/passwd"],
    ["zone", "/etc/passwd"],
    ["zone", "Nowhere/AtAll"],
    ["offset", 1e9, None],
    ["enum", manifest_of(Side), "HOLD"],
    ["enum", manifest_of(Side), "__class__"],
    ["enum", manifest_of(Bid), "price"],
    ["flag", manifest_of(Rights), 64],
    ["flag", manifest_of(Rights), "x"],
    ["object", manifest_of(Side), "name", "x"],
    ["object", manifest_of(Bid)],
    ["object", manifest_of(Bid), "price", "x"],
    ["object", manifest_of(Bid), "price", None],
    ["object", manifest_of(Bid), "price"],
    ["object", manifest_of(Lot), "size", 1, "price", 1.5],
    ["object", manifest_of(Within), "level", -1],
    ["error", "ValueError", 5, ["dict"]],
    ["error", "OSError", ["tuple"], ["dict", "__class__", 5], 1],
    ["protobuf", manifest_of(Bid), b""],
    ["ref", 5],
    ["ref", "nonsense"],
]
UNKNOWN: list[Any] = [
    ["object", "os.system", "x", 1],
    ["object", 5],
    ["enum", "enum.Enum", "x"],
    ["error", "SystemExit", ["tuple"], ["dict"]],
    ["error", "os.system", ["tuple"], ["dict"]],
    ["protobuf", "x", b""],
]


@pytest.mark.parametrize("tree", BAD, ids=str)
def test_trees_that_break_the_rules_are_bad_envelopes(tree: Any) -> None:
    with pytest.raises(InvalidEnvelopeError):
        tagged(tree)
    with pytest.raises(InvalidEnvelopeError):
        tagged(["list", tree])


@pytest.mark.parametrize("tree", UNKNOWN, ids=str)
def test_classes_that_nobody_registered_are_not_made(tree: Any) -> None:
    with pytest.raises(UnacceptableMessageError):
        tagged(tree)


def test_depth_is_bounded() -> None:
    tree: Any = ["list"]
    for _ in range(DEPTH_LEVELS_MAX - 1):
        tree = ["list", tree]
    assert isinstance(tagged(tree), list)
    with pytest.raises(InvalidEnvelopeError, match="deeper"):
        tagged(["list", tree])
    assert alike(
        ALL["msgpack"].deserialize(*ALL["msgpack"].serialize(deep(DEPTH_LEVELS_MAX))),
        deep(DEPTH_LEVELS_MAX),
    )


def test_keys_that_collide_are_bounded() -> None:
    colliding = [number * (2**61 - 1) for number in range(2 * COLLISIONS_MAX)]
    assert len({hash(number) for number in colliding}) == 1
    for container in (set(colliding), dict.fromkeys(colliding)):
        with pytest.raises(SerializationError, match=r"Carry\.value: .* equal hashes"):
            ALL["msgpack"].serialize(Carry(container))
    keys = [number if number < 2**64 else ["int", f"{number:x}"] for number in colliding]
    for tree in (
        ["set", *keys],
        ["frozenset", *keys],
        ["dict", *[k for key in keys for k in (key, 1)]],
    ):
        with pytest.raises(InvalidEnvelopeError, match="equal hashes"):
            tagged(tree)
    assert alike(tagged(["list", *keys]), colliding)


def test_the_body_is_of_the_class_that_the_manifest_names() -> None:
    bid = ["object", manifest_of(Bid), "price", 1]
    assert tagged(bid, manifest_of(Bid)) == Bid(1)
    with pytest.raises(InvalidEnvelopeError, match="another class"):
        tagged(bid, manifest_of(Ask))
    with pytest.raises(UnacceptableMessageError):
        tagged(bid, "os.system")


def test_fields_may_be_added_with_a_default_and_unknown_ones_are_ignored() -> None:
    plain = ["object", manifest_of(Plain), "number", 1, "price", ["decimal", "2"], "new", 5]
    assert tagged(plain) == Plain(1, Decimal(2))

    class Strict(Message[None], forbid_unknown_fields=True):
        number: int

    strict = ["object", manifest_of(Strict), "number", 1]
    assert tagged(strict) == Strict(1)
    with pytest.raises(InvalidEnvelopeError, match="no field 'new'"):
        tagged([*strict, "new", 5])


def test_combinations_of_flags_are_bounded() -> None:
    make_flag: Any = enum.Flag
    many = make_flag("Many", [f"BIT_{bit}" for bit in range(20)], module=__name__)
    register(many, "many")

    def all_of_them() -> None:
        for value in range(FLAG_VALUES_MAX + 20):
            tagged(["flag", "many", value])

    with pytest.raises(InvalidEnvelopeError, match="combinations"):
        all_of_them()
    assert tagged(["flag", "many", 1]) is many(1)


TAGS = re.findall(r'\["([a-z]+)"', tagged_module.__doc__ or "")


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 300) | st.floats() | values.texts,
        lambda inner: st.builds(
            lambda tag, parts: [tag, *parts],
            st.sampled_from(TAGS) | values.texts,
            st.lists(
                inner
                | st.sampled_from([manifest_of(Order), manifest_of(Lot), "ValueError", "price"]),
                max_size=4,
            ),
        ),
        max_leaves=10,
    )
)
def test_noise_is_an_object_or_a_bad_envelope(tree: Any) -> None:
    with suppress(InvalidEnvelopeError):
        tagged(tree)


# ── declarations ──────────────────────────────────────────────────────────────────────────────────────────────

Name = NewType("Name", str)
FITS: list[tuple[Any, list[Any], list[Any]]] = [
    (int, [1, True, Rank.LOW], [1.0, "1", None]),
    (float, [1.0, 1], ["1", None, 1j]),
    (complex, [1j, 1.0, 1], ["1"]),
    (None, [None], [0]),
    (Name, ["a"], [1]),
    (Literal["a", 1], ["a", 1], ["b", True, 1.0, []]),
    (list[int], [[], [1]], [[None], (1,), {1}]),
    (tuple[int, ...], [(), (1, 2)], [[1], (None,)]),
    (tuple[int, str], [(1, "a")], [(1,), ("a", 1), (1, "a", 2)]),
    (dict[str, list[int]], [{}, {"a": [1]}], [{"a": 1}, {1: []}, []]),
    (values.Extra, [{}, {"note": "n"}], [{"note": 1}, {"other": 1}, []]),
    (Annotated[int, "a hint"], [1], ["a"]),
    (Annotated[str, msgspec.Meta(max_length=2)], ["ab"], ["abc", 1]),
    (Annotated[list[Bid | Ask], msgspec.Meta(max_length=1)], [[Bid(1)]], [[1], [Bid(1)] * 2]),
    (Annotated[int | None, msgspec.Meta(ge=0)], [1, None], [-1, "a"]),
    (list[Annotated[int, msgspec.Meta(ge=0)]], [[1]], [[-1]]),
    (Box[int], [Box(1), Box(1, [2])], [Box("a"), Box(1, ["a"]), 1]),
    (Money, [Decimal(1)], [1]),
    (Annotated[int, {}], [1], ["a"]),
    (type[int], [], []),
]


@pytest.mark.parametrize(("declared", "good", "bad"), FITS, ids=str)
def test_values_fit_their_declarations(declared: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(matches_type(value, declared) for value in good)
    assert not any(matches_type(value, declared) for value in bad)
