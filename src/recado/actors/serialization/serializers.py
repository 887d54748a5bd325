"""Encodes messages as bytes and decodes them, with a format for each class.

    msgpack, json   structs whose values have exactly the declared types, by msgspec (lossless_encoding.py), and
                    None, booleans, integers, finite floats and text
    tagged          all other serializable values, in MessagePack or JSON (tagged_codec.py)
    protobuf        protobuf messages, by the name of their descriptor
    pickle          every other value, if the options of the node allow it

A *manifest* is the name of a class in the class registry. The class of a received value is looked up by it;
nothing is imported. Containers such as lists have no manifest; they are tagged. A reply whose type is exactly
the one that the message declares is encoded in plain MessagePack or JSON, and decoded as that type.

SR1  Except from pickles, `deserialize` creates instances only of registered classes, of the declared type of a
     reply, and of the types in tagged_codec.py.
SR2  Pickles are rejected before a byte of them is read, unless the node accepts them.
SR3  For any bytes `deserialize` returns a value, or raises InvalidEnvelopeError or UnacceptableMessageError.
SR4  A serialized value is deserialized as it was, types included, by every node that has its classes; or
     `serialize` raises SerializationError, which names the field.
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

from .class_registry import find_class, manifest_of
from .declared_types import describe_type, matches_type
from .errors import InvalidEnvelopeError, RemoteError, SerializationError, UnacceptableMessageError
from .lossless_encoding import LosslessCheck, lossless_check
from .tagged_codec import RefDecoder, RefEncoder, TaggedCodec

Encode = Callable[[object], bytes]
Decode = Callable[[bytes], object]

SerializerName = Literal["msgpack", "json", "protobuf", "pickle"]

# The format ids in journals and envelopes; envelope.proto has the same.
MSGPACK_FORMAT_ID: Final = 0
JSON_FORMAT_ID: Final = 1
PROTOBUF_FORMAT_ID: Final = 2
PICKLE_FORMAT_ID: Final = 3
TAGGED_MSGPACK_FORMAT_ID: Final = 4
TAGGED_JSON_FORMAT_ID: Final = 5

_FORMAT_IDS: Final[dict[SerializerName, int]] = {
    "msgpack": MSGPACK_FORMAT_ID,
    "json": JSON_FORMAT_ID,
    "protobuf": PROTOBUF_FORMAT_ID,
    "pickle": PICKLE_FORMAT_ID,
}
_TAGGED_FORMAT_IDS: Final = {
    MSGPACK_FORMAT_ID: TAGGED_MSGPACK_FORMAT_ID,
    JSON_FORMAT_ID: TAGGED_JSON_FORMAT_ID,
}
_REPLY_TYPES_MAX: Final = 10_000


def _always(_: object) -> bool:
    return True


def _never(_: object) -> bool:
    return False


# Values that need no declared type. In JSON bytes are text, so they are not among them.
_SCALAR_CHECKS: Final[dict[type, LosslessCheck]] = {
    NoneType: _always,
    bool: _always,
    int: _always,  # more than 64 bits raise when they are encoded
    float: isfinite,
    str: _always,
}


class Serializers:
    """The serializers of one node, or of its durable mailboxes."""

    def __init__(
        self,
        encode_ref: RefEncoder,
        decode_ref: RefDecoder,
        *,
        default: Literal["msgpack", "json"] = "msgpack",
        pickle: bool = False,
    ) -> None:
        """Create the serializers. `encode_ref` and `decode_ref` convert references to actors, `default` is the
        format of messages without another one, and `pickle` says whether pickles are sent and accepted."""
        self._default = _FORMAT_IDS[default]
        self._pickle = pickle
        self._encode_ref = encode_ref
        self._decode_ref = decode_ref
        self._tagged_codec = TaggedCodec(encode_ref, decode_ref)
        self._encoders: dict[int, Encode] = {
            MSGPACK_FORMAT_ID: msgspec.msgpack.Encoder(enc_hook=encode_ref).encode,
            JSON_FORMAT_ID: msgspec.json.Encoder(enc_hook=encode_ref).encode,
        }
        self._configured_formats: dict[type, int] = {}
        # For each class: the format, the manifest, the check of values that it can encode, and the encoder.
        self._writers_by_class: dict[type, tuple[int, str, LosslessCheck, Encode]] = {}
        self._readers_by_manifest: dict[tuple[int, str], Decode] = {}
        self._reply_checks: dict[Any, LosslessCheck] = {}
        self._reply_readers: dict[tuple[int, Any], Decode] = {}

    def set_serializer(self, cls: type, serializer: SerializerName) -> None:
        """Send messages of a class and of its subclasses in another format.

        Raises ValueError for pickle if the node does not allow it.
        """
        if serializer == "pickle" and not self._pickle:
            raise ValueError("the options of this node do not allow pickle")
        self._configured_formats[cls] = _FORMAT_IDS[serializer]
        self._writers_by_class.clear()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def serialize(self, value: object) -> tuple[int, str, bytes]:
        """Return the format id, the manifest and the body of a value. Raises SerializationError."""
        writer = self._writers_by_class.get(type(value))
        if writer is None:
            writer = self._writers_by_class[type(value)] = self._create_writer(type(value))
        format_id, manifest, is_for, write = writer
        try:
            if is_for(value):
                return format_id, manifest, write(value)
        except Exception as error:  # hooks and fields of the application can raise anything
            if format_id not in _TAGGED_FORMAT_IDS:
                raise _serialization_error(value, error) from error
            # Retry with tags: an integer of more than 64 bits, or an error that the tagged codec can explain.
        return self._serialize_tagged(value, format_id)

    def serialize_reply(self, value: object, reply_type: Any) -> tuple[int, str, bytes]:
        """Return the format id, the manifest and the body of a reply. `reply_type` is the type that the message
        declares; None if it declares none. Raises SerializationError."""
        writer = self._writers_by_class.get(type(value))
        if writer is None:
            writer = self._writers_by_class[type(value)] = self._create_writer(type(value))
        format_id, manifest, _, write = writer
        if manifest or format_id not in _TAGGED_FORMAT_IDS:
            return self.serialize(value)
        try:
            if reply_type is not None and self._reply_check(reply_type)(value):
                return format_id, "", write(value)
        except Exception:  # noqa: BLE001  as in `serialize`
            pass
        return self._serialize_tagged(value, format_id)

    def _serialize_tagged(self, value: object, format_id: int) -> tuple[int, str, bytes]:
        try:
            tree = self._tagged_codec.encode(value)
            body = self._encoders[format_id](tree)
        except SerializationError:
            if self._pickle:
                return PICKLE_FORMAT_ID, "", self._pickle_value(value)
            raise
        except Exception as error:
            raise _serialization_error(value, error) from error
        manifest = tree[1] if type(tree) is list and tree[0] == "object" else ""
        return _TAGGED_FORMAT_IDS[format_id], manifest, body

    def _create_writer(self, cls: type) -> tuple[int, str, LosslessCheck, Encode]:
        format_id = self._format_of(cls)
        if format_id == PROTOBUF_FORMAT_ID:
            if not issubclass(cls, ProtobufMessage):
                raise SerializationError(f"{cls.__qualname__} is not a protobuf message")
            return format_id, cls.DESCRIPTOR.full_name, _always, _encode_protobuf
        if format_id == PICKLE_FORMAT_ID:
            return format_id, "", _always, self._pickle_value
        write = self._encoders[format_id]
        if not issubclass(cls, msgspec.Struct):
            scalar = _SCALAR_CHECKS.get(cls, _never)
            return (
                format_id,
                "",
                _always if (cls, format_id) == (bytes, MSGPACK_FORMAT_ID) else scalar,
                write,
            )
        manifest = manifest_of(cls)
        return format_id, manifest, lossless_check(cls) or _never, write

    def _format_of(self, cls: type) -> int:
        for ancestor in cls.__mro__:
            if ancestor in self._configured_formats:
                return self._configured_formats[ancestor]
        if issubclass(cls, ProtobufMessage):
            return PROTOBUF_FORMAT_ID
        if self._pickle and issubclass(cls, msgspec.Struct):
            try:
                manifest_of(cls)
            except SerializationError:
                return PICKLE_FORMAT_ID
        return self._default

    def _pickle_value(self, value: object) -> bytes:
        file = io.BytesIO()
        try:
            _RefPickler(file, self._encode_ref).dump(value)
        except Exception as error:
            raise _serialization_error(value, error) from error
        return file.getvalue()

    def _unpickle_value(self, body: bytes) -> object:
        return _RefUnpickler(io.BytesIO(body), self._decode_ref).load()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def check_readable(self, format_id: int, manifest: str, reply_type: Any = None) -> None:
        """Raise UnacceptableMessageError if `deserialize` would raise it for any body. Called before a body is
        decompressed, which may be expensive."""
        self._find_reader(format_id, manifest, reply_type)

    def deserialize(
        self, format_id: int, manifest: str, body: bytes, reply_type: Any = None
    ) -> object:
        """Return the value of a body. `reply_type` is the type that a reply without manifest should have, if
        known.

        Raises InvalidEnvelopeError and UnacceptableMessageError.
        """
        reader = self._find_reader(format_id, manifest, reply_type)
        try:
            value = reader(body)
        except UnacceptableMessageError:
            raise
        except (msgspec.MsgspecError, DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidEnvelopeError(
                f"{manifest or 'a value'} cannot be decoded: {error}"
            ) from None
        except RemoteError as error:
            raise InvalidEnvelopeError(
                f"{manifest or 'a value'} cannot be decoded: {error}"
            ) from None
        except Exception as error:
            # Pickles and hooks can raise anything; the sender must get an error, and this node must not fail.
            raise InvalidEnvelopeError(
                f"{manifest or 'a value'} cannot be decoded: {error!r}"
            ) from error
        if (
            reply_type is not None
            and not manifest
            and format_id in (TAGGED_MSGPACK_FORMAT_ID, TAGGED_JSON_FORMAT_ID)
        ):
            _check_reply_type(value, reply_type)
        return value

    def _find_reader(self, format_id: int, manifest: str, reply_type: Any) -> Decode:
        if format_id == PICKLE_FORMAT_ID:
            manifest = ""  # a pickle needs none, and a received one must not be cached
        if (
            not manifest
            and reply_type is not None
            and format_id in (MSGPACK_FORMAT_ID, JSON_FORMAT_ID)
        ):
            return self._reply_reader(format_id, reply_type)
        found = self._readers_by_manifest.get((format_id, manifest))
        return found or self._create_reader(format_id, manifest)

    def _create_reader(self, format_id: int, manifest: str) -> Decode:
        reader: Decode
        if format_id == PICKLE_FORMAT_ID:
            if not self._pickle:
                raise UnacceptableMessageError("a pickle")
            reader = self._unpickle_value
        elif format_id == PROTOBUF_FORMAT_ID:
            cls = find_class(manifest)
            if cls is None or not issubclass(cls, ProtobufMessage):
                raise UnacceptableMessageError(f"no protobuf message is registered as {manifest!r}")
            reader = cls.FromString
        elif format_id in (MSGPACK_FORMAT_ID, JSON_FORMAT_ID):
            reader = self._decoder(format_id, self._class_of(manifest))
        elif format_id in (TAGGED_MSGPACK_FORMAT_ID, TAGGED_JSON_FORMAT_ID):
            reader = self._tagged_reader(format_id, manifest)
        else:
            raise UnacceptableMessageError(f"unknown format {format_id}")
        self._readers_by_manifest[format_id, manifest] = reader
        return reader

    def _class_of(self, manifest: str) -> Any:
        """Return the class of a manifest; Any if it is empty."""
        if not manifest:
            return Any
        cls = find_class(manifest)
        if cls is None or issubclass(cls, ProtobufMessage):
            raise UnacceptableMessageError(f"no class is registered as {manifest!r}")
        return cls

    def _tagged_reader(self, format_id: int, manifest: str) -> Decode:
        self._class_of(manifest)
        decode = (
            msgspec.msgpack.decode if format_id == TAGGED_MSGPACK_FORMAT_ID else msgspec.json.decode
        )
        lift = self._tagged_codec.decode

        def read(body: bytes) -> object:
            tree = decode(body)
            if manifest and not (type(tree) is list and tree[:2] == ["object", manifest]):
                raise InvalidEnvelopeError("the value is of another class")
            return lift(tree)

        return read

    def _reply_check(self, reply_type: Any) -> LosslessCheck:
        check = self._reply_checks.get(reply_type)
        if check is None:
            if len(self._reply_checks) >= _REPLY_TYPES_MAX:
                self._reply_checks.clear()
            check = self._reply_checks[reply_type] = lossless_check(reply_type) or _never
        return check

    def _reply_reader(self, format_id: int, reply_type: Any) -> Decode:
        reader = self._reply_readers.get((format_id, reply_type))
        if reader is None:
            if len(self._reply_readers) >= _REPLY_TYPES_MAX:
                self._reply_readers.clear()
            reader = self._decoder(format_id, reply_type)
            self._reply_readers[format_id, reply_type] = reader
        return reader

    def _decoder(self, format_id: int, target_type: Any) -> Decode:
        """Return the decoder of a type. Raises UnacceptableMessageError for a type that msgspec does not
        support, such as a union of two structs."""
        try:
            if format_id == MSGPACK_FORMAT_ID:
                return msgspec.msgpack.Decoder(target_type, dec_hook=self._decode_ref).decode
            return msgspec.json.Decoder(target_type, dec_hook=self._decode_ref).decode
        except Exception as error:  # noqa: BLE001  annotations of the application
            raise UnacceptableMessageError(
                f"{describe_type(target_type)} cannot be decoded without tags: {error}"
            ) from None


def _serialization_error(value: object, error: Exception) -> SerializationError:
    if isinstance(error, SerializationError):
        return error
    return SerializationError(f"{type(value).__qualname__}: {error}")


def _check_reply_type(value: object, reply_type: Any) -> None:
    if not matches_type(value, reply_type):
        kind = type(value).__qualname__
        raise InvalidEnvelopeError(
            f"a value cannot be decoded: {kind} does not match {describe_type(reply_type)}"
        )


def _encode_protobuf(value: object) -> bytes:
    assert isinstance(value, ProtobufMessage)
    return value.SerializeToString()


class _RefPickler(pickle.Pickler):
    """Pickles references to actors as their addresses."""

    def __init__(self, file: io.BytesIO, encode_ref: RefEncoder) -> None:
        super().__init__(file)
        self._encode_ref = encode_ref

    def persistent_id(self, value: object) -> object:
        return self._encode_ref(value) if isinstance(value, ActorRef) else None


class _RefUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, decode_ref: RefDecoder) -> None:
        super().__init__(file)
        self._decode_ref = decode_ref

    def persistent_load(self, address: object) -> object:
        return self._decode_ref(ActorRef, address)
