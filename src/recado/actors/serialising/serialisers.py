"""Messages as bytes and back: a serialiser for each class, and only classes of the catalogue.

    msgpack, json   structs whose values are exactly of the declared types, by msgspec (lossless.py)
    tagged          all other values that travel, in MessagePack or JSON (tagged.py)
    protobuf        messages of protobuf, by the name of their descriptor
    pickle          anything else, if the node's options say so

A *manifest* is the name of a class in the catalogue. The class of a value that arrives is looked up by it;
nothing is imported. A value without one, such as a list, is tagged; or, if it is an answer of exactly the type
that the message declares, in plain MessagePack or JSON, and read as of that type.

S1  `read` makes objects only of classes in the catalogue, of the declared type of a reply, and of the types in
    tagged.py.
S2  Pickles are refused before a byte of them is read, unless the node accepts them.
S3  Whatever the bytes are, `read` gives an object or raises `BadEnvelope` or `Unacceptable`.
S4  A value that was written is read again as it was, types included, by any node that has its classes; or
    `write` raises `CannotSerialise`, which names the field.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from math import isfinite
from types import NoneType
from typing import Any, Final, Literal

import msgspec
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from recado.actors.ref import ActorRef

from .catalogue import class_of, manifest_of
from .declarations import describe, fits
from .faults import BadEnvelope, CannotSerialise, RemoteFault, Unacceptable
from .lossless import Check, lossless_check
from .tagged import Hook, Tagged, TypedHook

Write = Callable[[object], bytes]
Read = Callable[[bytes], object]

Serialiser = Literal["msgpack", "json", "protobuf", "pickle"]

# As they are written down, in journals and in envelopes (envelope.proto has the same).
MSGPACK: Final = 0
JSON: Final = 1
PROTOBUF: Final = 2
PICKLE: Final = 3
TAGGED_MSGPACK: Final = 4
TAGGED_JSON: Final = 5

_NUMBERS: Final[dict[Serialiser, int]] = {
    "msgpack": MSGPACK,
    "json": JSON,
    "protobuf": PROTOBUF,
    "pickle": PICKLE,
}
_TAGGED: Final = {MSGPACK: TAGGED_MSGPACK, JSON: TAGGED_JSON}
_REPLY_TYPES_MOST: Final = 10_000


def _always(_: object) -> bool:
    return True


def _never(_: object) -> bool:
    return False


# Values that are what they are without a declared type; in JSON, bytes are text.
_SCALARS: Final[dict[type, Check]] = {
    NoneType: _always,
    bool: _always,
    int: _always,  # those of more than 64 bits fail to be written
    float: isfinite,
    str: _always,
}


class Serialisers:
    """Those of one node, or of its durable mailboxes."""

    def __init__(
        self,
        write_ref: Hook,
        read_ref: TypedHook,
        *,
        default: Literal["msgpack", "json"] = "msgpack",
        pickle: bool = False,
    ) -> None:
        """`write_ref` and `read_ref` are for what only a node can find: refs. `pickle`: whether pickles are
        written and read."""
        self._default = _NUMBERS[default]
        self._pickle = pickle
        self._write_ref = write_ref
        self._read_ref = read_ref
        self._tagged = Tagged(write_ref, read_ref)
        self._encoders: dict[int, Write] = {
            MSGPACK: msgspec.msgpack.Encoder(enc_hook=write_ref).encode,
            JSON: msgspec.json.Encoder(enc_hook=write_ref).encode,
        }
        self._chosen: dict[type, int] = {}
        # Of each class: the serialisation, the manifest, which values it is for, and how they are written.
        self._writers: dict[type, tuple[int, str, Check, Write]] = {}
        self._readers: dict[tuple[int, str], Read] = {}
        self._reply_checks: dict[Any, Check] = {}
        self._reply_readers: dict[tuple[int, Any], Read] = {}

    def use(self, cls: type, serialiser: Serialiser) -> None:
        """Messages of this class, and of those derived from it, are sent in this serialisation."""
        if serialiser == "pickle" and not self._pickle:
            raise ValueError("the options of this node do not allow pickle")
        self._chosen[cls] = _NUMBERS[serialiser]
        self._writers.clear()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def write(self, value: object) -> tuple[int, str, bytes]:
        """The serialisation, the manifest and the body. Raises CannotSerialise."""
        writer = self._writers.get(type(value))
        if writer is None:
            writer = self._writers[type(value)] = self._writer(type(value))
        number, manifest, is_for, write = writer
        try:
            if is_for(value):
                return number, manifest, write(value)
        except Exception as error:  # hooks and fields are anybody's
            if number not in _TAGGED:
                raise _unwritable(value, error) from error
            # An integer of more than 64 bits, or what only the writer of tagged values can name.
        return self._write_tagged(value, number)

    def write_answer(self, value: object, declared: Any) -> tuple[int, str, bytes]:
        """The same, of an answer to a message that declares this type of its reply; None: none."""
        writer = self._writers.get(type(value))
        if writer is None:
            writer = self._writers[type(value)] = self._writer(type(value))
        number, manifest, _, write = writer
        if manifest or number not in _TAGGED:
            return self.write(value)
        try:
            if declared is not None and self._reply_check(declared)(value):
                return number, "", write(value)
        except Exception:  # noqa: BLE001  as in `write`
            pass
        return self._write_tagged(value, number)

    def _write_tagged(self, value: object, number: int) -> tuple[int, str, bytes]:
        try:
            tree = self._tagged.lower(value)
            body = self._encoders[number](tree)
        except CannotSerialise:
            if self._pickle:
                return PICKLE, "", self._dump(value)
            raise
        except Exception as error:
            raise _unwritable(value, error) from error
        manifest = tree[1] if type(tree) is list and tree[0] == "object" else ""
        return _TAGGED[number], manifest, body

    def _writer(self, cls: type) -> tuple[int, str, Check, Write]:
        number = self._number(cls)
        if number == PROTOBUF:
            if not issubclass(cls, ProtobufMessage):
                raise CannotSerialise(f"{cls.__qualname__} is no message of protobuf")
            return number, cls.DESCRIPTOR.full_name, _always, _write_protobuf
        if number == PICKLE:
            return number, "", _always, self._dump
        write = self._encoders[number]
        if not issubclass(cls, msgspec.Struct):
            scalar = _SCALARS.get(cls, _never)
            return number, "", _always if (cls, number) == (bytes, MSGPACK) else scalar, write
        manifest = manifest_of(cls)
        return number, manifest, lossless_check(cls) or _never, write

    def _number(self, cls: type) -> int:
        for ancestor in cls.__mro__:
            if ancestor in self._chosen:
                return self._chosen[ancestor]
        if issubclass(cls, ProtobufMessage):
            return PROTOBUF
        if self._pickle and issubclass(cls, msgspec.Struct):
            try:
                manifest_of(cls)
            except CannotSerialise:
                return PICKLE
        return self._default

    def _dump(self, value: object) -> bytes:
        file = io.BytesIO()
        try:
            _Pickler(file, self._write_ref).dump(value)
        except Exception as error:
            raise _unwritable(value, error) from error
        return file.getvalue()

    def _load(self, body: bytes) -> object:
        return _Unpickler(io.BytesIO(body), self._read_ref).load()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def check(self, serialisation: int, manifest: str, reply: Any = None) -> None:
        """Raises Unacceptable if `read` would, whatever the body is: for those that are costly to get at."""
        self._find(serialisation, manifest, reply)

    def read(self, serialisation: int, manifest: str, body: bytes, reply: Any = None) -> object:
        """`reply` is the type that a plain answer should have, if that is known."""
        reader = self._find(serialisation, manifest, reply)
        try:
            value = reader(body)
        except Unacceptable:
            raise
        except (msgspec.MsgspecError, DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadEnvelope(f"{manifest or 'a value'} that cannot be read: {error}") from None
        except RemoteFault as error:
            raise BadEnvelope(f"{manifest or 'a value'} that cannot be read: {error}") from None
        except Exception as error:
            # Pickles and hooks raise what they like; the sender must hear of it, and nothing else may end.
            raise BadEnvelope(f"{manifest or 'a value'} that cannot be read: {error!r}") from error
        if reply is not None and not manifest and serialisation in (TAGGED_MSGPACK, TAGGED_JSON):
            _check_reply(value, reply)
        return value

    def _find(self, serialisation: int, manifest: str, reply: Any) -> Read:
        if serialisation == PICKLE:
            manifest = ""  # it says itself what it is, and what others say of it is not remembered
        if not manifest and reply is not None and serialisation in (MSGPACK, JSON):
            return self._reply_reader(serialisation, reply)
        found = self._readers.get((serialisation, manifest))
        return found or self._reader(serialisation, manifest)

    def _reader(self, serialisation: int, manifest: str) -> Read:
        reader: Read
        if serialisation == PICKLE:
            if not self._pickle:
                raise Unacceptable("a pickle")
            reader = self._load
        elif serialisation == PROTOBUF:
            cls = class_of(manifest)
            if cls is None or not issubclass(cls, ProtobufMessage):
                raise Unacceptable(f"no protobuf message is registered as {manifest!r}")
            reader = cls.FromString
        elif serialisation in (MSGPACK, JSON):
            reader = self._decoder(serialisation, self._class(manifest))
        elif serialisation in (TAGGED_MSGPACK, TAGGED_JSON):
            reader = self._tagged_reader(serialisation, manifest)
        else:
            raise Unacceptable(f"unknown serialisation {serialisation}")
        self._readers[serialisation, manifest] = reader
        return reader

    def _class(self, manifest: str) -> Any:
        """What a value of this manifest is; anything if there is none."""
        if not manifest:
            return Any
        cls = class_of(manifest)
        if cls is None or issubclass(cls, ProtobufMessage):
            raise Unacceptable(f"no class is registered as {manifest!r}")
        return cls

    def _tagged_reader(self, serialisation: int, manifest: str) -> Read:
        self._class(manifest)
        decode = msgspec.msgpack.decode if serialisation == TAGGED_MSGPACK else msgspec.json.decode
        lift = self._tagged.lift

        def read(body: bytes) -> object:
            tree = decode(body)
            if manifest and not (type(tree) is list and tree[:2] == ["object", manifest]):
                raise BadEnvelope("it is of another class")
            return lift(tree)

        return read

    def _reply_check(self, declared: Any) -> Check:
        check = self._reply_checks.get(declared)
        if check is None:
            if len(self._reply_checks) >= _REPLY_TYPES_MOST:
                self._reply_checks.clear()
            check = self._reply_checks[declared] = lossless_check(declared) or _never
        return check

    def _reply_reader(self, serialisation: int, reply: Any) -> Read:
        reader = self._reply_readers.get((serialisation, reply))
        if reader is None:
            if len(self._reply_readers) >= _REPLY_TYPES_MOST:
                self._reply_readers.clear()
            reader = self._decoder(serialisation, reply)
            self._reply_readers[serialisation, reply] = reader
        return reader

    def _decoder(self, serialisation: int, wanted: Any) -> Read:
        """Raises Unacceptable for a type that msgspec cannot read, such as two structs in a union."""
        try:
            if serialisation == MSGPACK:
                return msgspec.msgpack.Decoder(wanted, dec_hook=self._read_ref).decode
            return msgspec.json.Decoder(wanted, dec_hook=self._read_ref).decode
        except Exception as error:  # noqa: BLE001  annotations are anybody's
            raise Unacceptable(f"{describe(wanted)} cannot be read untagged: {error}") from None


def _unwritable(value: object, error: Exception) -> CannotSerialise:
    if isinstance(error, CannotSerialise):
        return error
    return CannotSerialise(f"{type(value).__qualname__}: {error}")


def _check_reply(value: object, reply: Any) -> None:
    if not fits(value, reply):
        kind = type(value).__qualname__
        raise BadEnvelope(f"a value that cannot be read: {kind} does not fit {describe(reply)}")


def _write_protobuf(value: object) -> bytes:
    assert isinstance(value, ProtobufMessage)
    return value.SerializeToString()


class _Pickler(pickle.Pickler):
    """References to actors are pickled as their addresses."""

    def __init__(self, file: io.BytesIO, write_ref: Hook) -> None:
        super().__init__(file)
        self._write_ref = write_ref

    def persistent_id(self, value: object) -> object:
        return self._write_ref(value) if isinstance(value, ActorRef) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, read_ref: TypedHook) -> None:
        super().__init__(file)
        self._read_ref = read_ref

    def persistent_load(self, address: object) -> object:
        return self._read_ref(ActorRef, address)
