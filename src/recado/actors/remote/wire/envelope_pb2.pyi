from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SerializationFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MSGPACK: _ClassVar[SerializationFormat]
    JSON: _ClassVar[SerializationFormat]
    PROTOBUF: _ClassVar[SerializationFormat]
    PICKLE: _ClassVar[SerializationFormat]
    TAGGED_MSGPACK: _ClassVar[SerializationFormat]
    TAGGED_JSON: _ClassVar[SerializationFormat]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAIN: _ClassVar[Compression]
    ZLIB: _ClassVar[Compression]
    ZSTD: _ClassVar[Compression]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE: _ClassVar[Kind]
    ANSWER: _ClassVar[Kind]
    CONTROL: _ClassVar[Kind]
MSGPACK: SerializationFormat
JSON: SerializationFormat
PROTOBUF: SerializationFormat
PICKLE: SerializationFormat
TAGGED_MSGPACK: SerializationFormat
TAGGED_JSON: SerializationFormat
PLAIN: Compression
ZLIB: Compression
ZSTD: Compression
MESSAGE: Kind
ANSWER: Kind
CONTROL: Kind

class Payload(_message.Message):
    __slots__ = ("format_id", "body", "manifest", "compression")
    FORMAT_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    format_id: SerializationFormat
    body: bytes
    manifest: str
    compression: Compression
    def __init__(self, format_id: _Optional[_Union[SerializationFormat, str]] = ..., body: _Optional[bytes] = ..., manifest: _Optional[str] = ..., compression: _Optional[_Union[Compression, str]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "text", "arguments")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    text: str
    arguments: bytes
    def __init__(self, kind: _Optional[str] = ..., text: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class Metadatum(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("id", "target", "one_way", "message", "exception", "supervisor", "sender", "metadata", "client", "kind", "answers", "timeout_ms", "node", "receipt")
    ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ONE_WAY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    SUPERVISOR_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    id: int
    target: str
    one_way: bool
    message: Payload
    exception: Failure
    supervisor: str
    sender: str
    metadata: _containers.RepeatedCompositeFieldContainer[Metadatum]
    client: str
    kind: Kind
    answers: int
    timeout_ms: int
    node: str
    receipt: bool
    def __init__(self, id: _Optional[int] = ..., target: _Optional[str] = ..., one_way: _Optional[bool] = ..., message: _Optional[_Union[Payload, _Mapping]] = ..., exception: _Optional[_Union[Failure, _Mapping]] = ..., supervisor: _Optional[str] = ..., sender: _Optional[str] = ..., metadata: _Optional[_Iterable[_Union[Metadatum, _Mapping]]] = ..., client: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., answers: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., node: _Optional[str] = ..., receipt: _Optional[bool] = ...) -> None: ...
