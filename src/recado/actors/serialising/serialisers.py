"""Messages as bytes and back: a serialiser for each class, and only classes that were registered.

    msgpack, json   messages, registered structs and dataclasses, and plain values (text, numbers, lists, …)
    protobuf        messages of protobuf, by the name of their descriptor
    pickle          anything else, if the node's options say so

A *manifest* is the name of a class in the catalogue. What arrives is looked up by it; nothing is imported.
A plain value has none, and arrives as what the asker's message says its reply is, if it does.

S1  `read` makes objects only of registered classes, of the declared type of a reply, and of plain values.
S2  Pickles are refused before a byte of them is read, unless the node accepts them.
S3  Whatever the bytes are, `read` gives an object or raises `BadEnvelope` or `Unacceptable`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from .catalogue import class_of, manifest_of
from .faults import BadEnvelope, CannotSerialise, Unacceptable

Write = Callable[[object], bytes]
Read = Callable[[bytes], object]
Hook = Callable[[object], object]
TypedHook = Callable[[type, object], object]

Serialiser = Literal["msgpack", "json", "protobuf", "pickle"]

# As they are written down, in journals and in envelopes (envelope.proto has the same).
MSGPACK: Final = 0
JSON: Final = 1
PROTOBUF: Final = 2
PICKLE: Final = 3

_NUMBERS: Final[dict[Serialiser, int]] = {
    "msgpack": MSGPACK,
    "json": JSON,
    "protobuf": PROTOBUF,
    "pickle": PICKLE,
}
_PLAIN: Final = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset)
_REPLY_TYPES_MOST: Final = 10_000


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
        self._read_ref = read_ref
        self._msgpack = msgspec.msgpack.Encoder(enc_hook=write_ref)
        self._json = msgspec.json.Encoder(enc_hook=write_ref)
        self._chosen: dict[type, int] = {}
        self._writers: dict[type, tuple[int, str, Write]] = {}
        self._readers: dict[tuple[int, str], Read] = {}
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
        try:
            return writer[0], writer[1], writer[2](value)
        except CannotSerialise:
            raise
        except Exception as error:  # hooks and fields are anybody's
            raise CannotSerialise(f"{type(value).__qualname__}: {error}") from error

    def _writer(self, cls: type) -> tuple[int, str, Write]:
        number = self._number(cls)
        if number == PROTOBUF:
            if not issubclass(cls, ProtobufMessage):
                raise CannotSerialise(f"{cls.__qualname__} is no message of protobuf")
            return number, cls.DESCRIPTOR.full_name, _write_protobuf
        if number == PICKLE:
            return number, "", pickle.dumps
        write = self._msgpack.encode if number == MSGPACK else self._json.encode
        return number, "" if cls in _PLAIN else manifest_of(cls), write

    def _number(self, cls: type) -> int:
        for ancestor in cls.__mro__:
            if ancestor in self._chosen:
                return self._chosen[ancestor]
        if issubclass(cls, ProtobufMessage):
            return PROTOBUF
        if cls in _PLAIN:
            return self._default
        try:
            manifest_of(cls)
        except CannotSerialise:
            if self._pickle:
                return PICKLE
            raise
        return self._default

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def check(self, serialisation: int, manifest: str, reply: Any = None) -> None:
        """Raises Unacceptable if `read` would, whatever the body is: for those that are costly to get at."""
        self._find(serialisation, manifest, reply)

    def read(self, serialisation: int, manifest: str, body: bytes, reply: Any = None) -> object:
        """`reply` is the type that a plain answer should have, if that is known."""
        reader = self._find(serialisation, manifest, reply)
        try:
            return reader(body)
        except (msgspec.MsgspecError, DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadEnvelope(f"{manifest or 'a value'} that cannot be read: {error}") from None
        except Exception as error:
            # Pickles and hooks raise what they like; the sender must hear of it, and nothing else may end.
            raise BadEnvelope(f"{manifest or 'a value'} that cannot be read: {error!r}") from error

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
            reader = pickle.loads
        elif serialisation == PROTOBUF:
            cls = class_of(manifest)
            if cls is None or not issubclass(cls, ProtobufMessage):
                raise Unacceptable(f"no protobuf message is registered as {manifest!r}")
            reader = cls.FromString
        elif serialisation in (MSGPACK, JSON):
            wanted: Any = Any
            if manifest:
                wanted = class_of(manifest)
                if wanted is None or issubclass(wanted, ProtobufMessage):
                    raise Unacceptable(f"no class is registered as {manifest!r}")
            reader = self._decoder(serialisation, wanted)
        else:
            raise Unacceptable(f"unknown serialisation {serialisation}")
        self._readers[serialisation, manifest] = reader
        return reader

    def _reply_reader(self, serialisation: int, reply: Any) -> Read:
        reader = self._reply_readers.get((serialisation, reply))
        if reader is None:
            if len(self._reply_readers) >= _REPLY_TYPES_MOST:
                self._reply_readers.clear()
            try:
                reader = self._decoder(serialisation, reply)
            except TypeError:  # a type that msgspec has no idea of, such as two structs in a union
                reader = self._decoder(serialisation, Any)
            self._reply_readers[serialisation, reply] = reader
        return reader

    def _decoder(self, serialisation: int, wanted: Any) -> Read:
        if serialisation == MSGPACK:
            return msgspec.msgpack.Decoder(wanted, dec_hook=self._read_ref).decode
        return msgspec.json.Decoder(wanted, dec_hook=self._read_ref).decode


def _write_protobuf(value: object) -> bytes:
    assert isinstance(value, ProtobufMessage)
    return value.SerializeToString()
