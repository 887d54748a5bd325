"""Messages as bytes: which classes, which formats, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.message import Message
from recado.actors.remote.wire.envelope_pb2 import Metadatum, Payload, SerializationFormat
from recado.actors.serialization import class_registry
from recado.actors.serialization.class_registry import (
    find_class,
    manifest_of,
    register,
    reply_type_of,
)
from recado.actors.serialization.errors import (
    InvalidEnvelopeError,
    SerializationError,
    UnacceptableMessageError,
)
from recado.actors.serialization.serializers import (
    JSON_FORMAT_ID,
    MSGPACK_FORMAT_ID,
    PICKLE_FORMAT_ID,
    PROTOBUF_FORMAT_ID,
    TAGGED_JSON_FORMAT_ID,
    TAGGED_MSGPACK_FORMAT_ID,
    SerializerName,
    Serializers,
)


class Ack(msgspec.Struct, frozen=True):
    order: int


class Order(msgspec.Struct, frozen=True):
    id: int
    tags: tuple[str, ...] = ()


class Place(Message[Ack]):
    order: Order


class Listed(Message[list[Order]]):
    pass


class Named(Message[None]):
    manifest: ClassVar[str] = "shop.named"
    text: str


class Urgent(Place):
    hurry: int


class Guarded(Message[None]):
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


@dataclass(frozen=True)
class Loose:
    number: int


def no_ref(*about: object) -> object:
    raise NotImplementedError(f"no refs here: {about}")


def make(**options: Any) -> Serializers:
    return Serializers(no_ref, no_ref, **options)


def test_the_numbers_are_those_of_envelopes() -> None:
    assert dict(SerializationFormat.items()) == {
        "MSGPACK": MSGPACK_FORMAT_ID,
        "JSON": JSON_FORMAT_ID,
        "PROTOBUF": PROTOBUF_FORMAT_ID,
        "PICKLE": PICKLE_FORMAT_ID,
        "TAGGED_MSGPACK": TAGGED_MSGPACK_FORMAT_ID,
        "TAGGED_JSON": TAGGED_JSON_FORMAT_ID,
    }


def there_and_back(serializers: Serializers, value: object, reply: Any = None) -> object:
    return serializers.deserialize(*serializers.serialize(value), reply)


@pytest.mark.parametrize("serializer", ["msgpack", "json"])
@pytest.mark.parametrize(
    "value",
    [Place(Order(7, ("a", "b"))), Named("x"), Urgent(Order(1), hurry=3), Ack(3), None, 5, "t"],
)
def test_messages_and_their_replies_travel(serializer: str, value: object) -> None:
    assert there_and_back(make(default=serializer), value) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_plain_values_travel(value: object) -> None:
    assert there_and_back(make(), value) == value


def test_a_plain_answer_is_what_the_message_says() -> None:
    serializers = make()
    orders = [Order(1), Order(2, ("x",))]
    assert there_and_back(serializers, orders, reply_type_of(Listed)) == orders
    with pytest.raises(InvalidEnvelopeError, match="cannot be decoded"):
        there_and_back(serializers, ["no order"], reply_type_of(Listed))


def test_a_reply_type_that_says_nothing_gives_plain_values() -> None:
    serializers = make()
    assert there_and_back(serializers, [{"a": 1}], Any) == [{"a": 1}]
    with pytest.raises(InvalidEnvelopeError, match="list does not match"):
        there_and_back(serializers, [{"a": 1}], Order | Ack)


def test_messages_of_protobuf_travel_as_such() -> None:
    register(Metadatum)
    serializers = make()
    datum = Metadatum(key="k", value="v")
    written = serializers.serialize(datum)
    assert written[:2] == (PROTOBUF_FORMAT_ID, "recado.actors.Metadatum")
    assert serializers.deserialize(*written) == datum
    with pytest.raises(UnacceptableMessageError):
        serializers.deserialize(*serializers.serialize(Payload()))


def test_a_class_may_have_a_format_of_its_own() -> None:
    serializers = make()
    serializers.set_serializer(Place, "json")
    number, _, body = serializers.serialize(Urgent(Order(1), hurry=2))
    assert (number, body[:1]) == (JSON_FORMAT_ID, b"{")
    assert serializers.serialize(Named("x"))[0] == MSGPACK_FORMAT_ID


def test_a_dataclass_travels_when_it_is_registered() -> None:
    serializers = make()
    register(Loose, "loose")
    assert serializers.serialize(Loose(4))[1] == "loose"
    assert there_and_back(serializers, Loose(4)) == Loose(4)


def test_what_nobody_registered_stays() -> None:
    class Stranger:
        pass

    @dataclass
    class Unknown:
        number: int

    for value in (Stranger(), Unknown(1), object()):
        with pytest.raises(SerializationError, match="register"):
            make().serialize(value)
    with pytest.raises(TypeError, match="not a struct"):
        register(Stranger)


def test_a_manifest_is_for_one_class() -> None:
    with pytest.raises(ValueError, match="already"):
        register(type("Other", (msgspec.Struct,), {}), register_name := "twice") and register(
            Order, register_name
        )


def test_manifests_are_names_of_the_catalogue_and_nothing_is_imported() -> None:
    assert manifest_of(Place) == f"{__name__}.Place"
    assert find_class("shop.named") is Named
    for name in ("os.system", "subprocess.Popen", "builtins.eval", "", f"{__name__}.make"):
        assert find_class(name) is None
    with pytest.raises(UnacceptableMessageError):
        make().deserialize(MSGPACK_FORMAT_ID, "subprocess.Popen", b"\x80")


def test_a_class_that_is_defined_again_is_the_later_one() -> None:
    def define() -> type:
        class Again(Message[None]):
            pass

        return Again

    first, second = define(), define()
    assert manifest_of(first) == manifest_of(second)
    class_registry._discovered.clear()
    assert find_class(manifest_of(first)) is second


def test_reply_types_are_what_the_bases_say() -> None:
    assert reply_type_of(Place) is Ack
    assert reply_type_of(Urgent) is Ack
    assert reply_type_of(Listed) == list[Order]
    assert reply_type_of(Ack) is None
    assert reply_type_of(Message) is None


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────


class Bomb:
    went_off = False

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _go_off, ()


def _go_off() -> object:
    Bomb.went_off = True
    return object()


def test_pickles_are_refused_before_they_are_read() -> None:
    with pytest.raises(UnacceptableMessageError, match="pickle"):
        make().deserialize(PICKLE_FORMAT_ID, "", pickle.dumps(Bomb()))
    assert not Bomb.went_off


def test_pickle_is_for_those_who_ask_for_it() -> None:
    serializers = make(pickle=True)
    number, manifest, body = serializers.serialize(PurePath("a"))
    assert (number, manifest) == (PICKLE_FORMAT_ID, "")
    assert serializers.deserialize(number, manifest, body) == PurePath("a")
    with pytest.raises(InvalidEnvelopeError):
        serializers.deserialize(PICKLE_FORMAT_ID, "", b"no pickle")
    serializers.set_serializer(Named, "pickle")
    assert there_and_back(serializers, Named("x")) == Named("x")
    with pytest.raises(ValueError, match="pickle"):
        make().set_serializer(Named, "pickle")


@given(
    st.sampled_from([MSGPACK_FORMAT_ID, JSON_FORMAT_ID, PROTOBUF_FORMAT_ID, PICKLE_FORMAT_ID, 9]),
    st.binary(max_size=100),
)
def test_noise_is_an_object_or_a_bad_envelope(format_id: int, noise: bytes) -> None:
    for manifest in ("", "shop.named", f"{__name__}.Place", "recado.actors.Metadatum", "nobody"):
        try:
            make().deserialize(format_id, manifest, noise)
        except InvalidEnvelopeError:
            continue


@pytest.mark.parametrize(
    ("format_id", "deep"), [(MSGPACK_FORMAT_ID, b"\x91"), (JSON_FORMAT_ID, b"[")]
)
def test_depth_is_bounded(format_id: int, deep: bytes) -> None:
    with pytest.raises(InvalidEnvelopeError):
        make().deserialize(format_id, "", deep * 200_000)


def test_wrong_fields_and_what_a_class_itself_refuses() -> None:
    serializers = make()
    for body in (
        b"\x80",
        msgspec.msgpack.encode({"size": "x"}),
        msgspec.msgpack.encode({"size": -1}),
    ):
        with pytest.raises(InvalidEnvelopeError):
            serializers.deserialize(MSGPACK_FORMAT_ID, manifest_of(Guarded), body)


def test_what_cannot_be_written_is_told() -> None:
    with pytest.raises(SerializationError):
        make().serialize([object()])
    with pytest.raises(SerializationError):
        make().serialize(2**70_000)


@pytest.mark.parametrize("serializer", ["protobuf", "json", "msgpack"])
def test_protobuf_is_for_messages_of_protobuf(serializer: SerializerName) -> None:
    serializers = make()
    serializers.set_serializer(Named, serializer)
    if serializer == "protobuf":
        with pytest.raises(SerializationError, match="not a protobuf message"):
            serializers.serialize(Named("x"))
    else:
        assert there_and_back(serializers, Named("x")) == Named("x")
