"""Messages as bytes: which classes, which serialisations, and what is refused."""

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
from recado.actors.remote.sealed.envelope_pb2 import Metadatum, Payload, Serialisation
from recado.actors.serialising import catalogue
from recado.actors.serialising.catalogue import class_of, manifest_of, register, reply_type
from recado.actors.serialising.faults import BadEnvelope, CannotSerialise, Unacceptable
from recado.actors.serialising.serialisers import (
    JSON,
    MSGPACK,
    PICKLE,
    PROTOBUF,
    TAGGED_JSON,
    TAGGED_MSGPACK,
    Serialiser,
    Serialisers,
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


def make(**options: Any) -> Serialisers:
    return Serialisers(no_ref, no_ref, **options)


def test_the_numbers_are_those_of_envelopes() -> None:
    assert dict(Serialisation.items()) == {
        "MSGPACK": MSGPACK,
        "JSON": JSON,
        "PROTOBUF": PROTOBUF,
        "PICKLE": PICKLE,
        "TAGGED_MSGPACK": TAGGED_MSGPACK,
        "TAGGED_JSON": TAGGED_JSON,
    }


def there_and_back(serialisers: Serialisers, value: object, reply: Any = None) -> object:
    return serialisers.read(*serialisers.write(value), reply)


@pytest.mark.parametrize("serialiser", ["msgpack", "json"])
@pytest.mark.parametrize(
    "value",
    [Place(Order(7, ("a", "b"))), Named("x"), Urgent(Order(1), hurry=3), Ack(3), None, 5, "t"],
)
def test_messages_and_their_replies_travel(serialiser: str, value: object) -> None:
    assert there_and_back(make(default=serialiser), value) == value


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
    serialisers = make()
    orders = [Order(1), Order(2, ("x",))]
    assert there_and_back(serialisers, orders, reply_type(Listed)) == orders
    with pytest.raises(BadEnvelope, match="cannot be read"):
        there_and_back(serialisers, ["no order"], reply_type(Listed))


def test_a_reply_type_that_says_nothing_gives_plain_values() -> None:
    serialisers = make()
    assert there_and_back(serialisers, [{"a": 1}], Any) == [{"a": 1}]
    with pytest.raises(BadEnvelope, match="list does not fit"):
        there_and_back(serialisers, [{"a": 1}], Order | Ack)


def test_messages_of_protobuf_travel_as_such() -> None:
    register(Metadatum)
    serialisers = make()
    datum = Metadatum(key="k", value="v")
    written = serialisers.write(datum)
    assert written[:2] == (PROTOBUF, "recado.actors.Metadatum")
    assert serialisers.read(*written) == datum
    with pytest.raises(Unacceptable):
        serialisers.read(*serialisers.write(Payload()))


def test_a_class_may_have_a_serialisation_of_its_own() -> None:
    serialisers = make()
    serialisers.use(Place, "json")
    number, _, body = serialisers.write(Urgent(Order(1), hurry=2))
    assert (number, body[:1]) == (JSON, b"{")
    assert serialisers.write(Named("x"))[0] == MSGPACK


def test_a_dataclass_travels_when_it_is_registered() -> None:
    serialisers = make()
    register(Loose, "loose")
    assert serialisers.write(Loose(4))[1] == "loose"
    assert there_and_back(serialisers, Loose(4)) == Loose(4)


def test_what_nobody_registered_stays() -> None:
    class Stranger:
        pass

    @dataclass
    class Unknown:
        number: int

    for value in (Stranger(), Unknown(1), object()):
        with pytest.raises(CannotSerialise, match="register"):
            make().write(value)
    with pytest.raises(TypeError, match="no struct"):
        register(Stranger)


def test_a_manifest_is_for_one_class() -> None:
    with pytest.raises(ValueError, match="already"):
        register(type("Other", (msgspec.Struct,), {}), register_name := "twice") and register(
            Order, register_name
        )


def test_manifests_are_names_of_the_catalogue_and_nothing_is_imported() -> None:
    assert manifest_of(Place) == f"{__name__}.Place"
    assert class_of("shop.named") is Named
    for name in ("os.system", "subprocess.Popen", "builtins.eval", "", f"{__name__}.make"):
        assert class_of(name) is None
    with pytest.raises(Unacceptable):
        make().read(MSGPACK, "subprocess.Popen", b"\x80")


def test_a_class_that_is_defined_again_is_the_later_one() -> None:
    def define() -> type:
        class Again(Message[None]):
            pass

        return Again

    first, second = define(), define()
    assert manifest_of(first) == manifest_of(second)
    catalogue._found.clear()
    assert class_of(manifest_of(first)) is second


def test_reply_types_are_what_the_bases_say() -> None:
    assert reply_type(Place) is Ack
    assert reply_type(Urgent) is Ack
    assert reply_type(Listed) == list[Order]
    assert reply_type(Ack) is None
    assert reply_type(Message) is None


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────


class Bomb:
    went_off = False

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _go_off, ()


def _go_off() -> object:
    Bomb.went_off = True
    return object()


def test_pickles_are_refused_before_they_are_read() -> None:
    with pytest.raises(Unacceptable, match="pickle"):
        make().read(PICKLE, "", pickle.dumps(Bomb()))
    assert not Bomb.went_off


def test_pickle_is_for_those_who_ask_for_it() -> None:
    serialisers = make(pickle=True)
    number, manifest, body = serialisers.write(PurePath("a"))
    assert (number, manifest) == (PICKLE, "")
    assert serialisers.read(number, manifest, body) == PurePath("a")
    with pytest.raises(BadEnvelope):
        serialisers.read(PICKLE, "", b"no pickle")
    serialisers.use(Named, "pickle")
    assert there_and_back(serialisers, Named("x")) == Named("x")
    with pytest.raises(ValueError, match="pickle"):
        make().use(Named, "pickle")


@given(st.sampled_from([MSGPACK, JSON, PROTOBUF, PICKLE, 9]), st.binary(max_size=100))
def test_noise_is_an_object_or_a_bad_envelope(serialisation: int, noise: bytes) -> None:
    for manifest in ("", "shop.named", f"{__name__}.Place", "recado.actors.Metadatum", "nobody"):
        try:
            make().read(serialisation, manifest, noise)
        except BadEnvelope:
            continue


@pytest.mark.parametrize(("serialisation", "deep"), [(MSGPACK, b"\x91"), (JSON, b"[")])
def test_depth_is_bounded(serialisation: int, deep: bytes) -> None:
    with pytest.raises(BadEnvelope):
        make().read(serialisation, "", deep * 200_000)


def test_wrong_fields_and_what_a_class_itself_refuses() -> None:
    serialisers = make()
    for body in (
        b"\x80",
        msgspec.msgpack.encode({"size": "x"}),
        msgspec.msgpack.encode({"size": -1}),
    ):
        with pytest.raises(BadEnvelope):
            serialisers.read(MSGPACK, manifest_of(Guarded), body)


def test_what_cannot_be_written_is_told() -> None:
    with pytest.raises(CannotSerialise):
        make().write([object()])
    with pytest.raises(CannotSerialise):
        make().write(2**70_000)


@pytest.mark.parametrize("serialiser", ["protobuf", "json", "msgpack"])
def test_protobuf_is_for_messages_of_protobuf(serialiser: Serialiser) -> None:
    serialisers = make()
    serialisers.use(Named, serialiser)
    if serialiser == "protobuf":
        with pytest.raises(CannotSerialise, match="no message of protobuf"):
            serialisers.write(Named("x"))
    else:
        assert there_and_back(serialisers, Named("x")) == Named("x")
