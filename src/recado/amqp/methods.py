"""Every method of AMQP 0-9-1, with RabbitMQ's extensions: the specification's table as classes.

Each class is one method. Its fields are in wire order and annotated with their wire types, so `codec` compiles
the encoding of a method from its class alone. A reserved field is a class variable: it has a position and a
constant value on the wire, and callers cannot set it. Consecutive bits share an octet, the first one in the
lowest bit. Names and defaults are the specification's, except for the `class-id` and `method-id` of the two
close methods: they identify the method that failed, so they are called `failed_class` and `failed_method`.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Final, TypeVar

import msgspec

from .values import FieldTable as FieldTable

Bit = Annotated[bool, "bit"]
Octet = Annotated[int, "octet"]
Short = Annotated[int, "short"]
Long = Annotated[int, "long"]
LongLong = Annotated[int, "longlong"]
ShortStr = Annotated[str, "shortstr"]
LongStr = Annotated[bytes, "longstr"]
Table = Annotated[FieldTable, "table"]


class Method(msgspec.Struct, frozen=True):
    """The base class of all methods."""

    class_id: ClassVar[int]
    method_id: ClassVar[int]
    name: ClassVar[str]
    has_content: ClassVar[bool]


METHODS: Final[dict[tuple[int, int], type[Method]]] = {}

_M = TypeVar("_M", bound=Method)


def _method(
    class_id: int, method_id: int, name: str, *, content: bool = False
) -> Callable[[type[_M]], type[_M]]:
    def register(method: type[_M]) -> type[_M]:
        method.class_id = class_id
        method.method_id = method_id
        method.name = name
        method.has_content = content
        METHODS[class_id, method_id] = method
        return method

    return register


# ── connection ────────────────────────────────────────────────────────────────────────────────────


@_method(10, 10, "connection.start")
class ConnectionStart(Method, frozen=True):
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = {}
    mechanisms: LongStr = b"PLAIN"
    locales: LongStr = b"en_US"


@_method(10, 11, "connection.start-ok")
class ConnectionStartOk(Method, frozen=True):
    client_properties: Table = {}
    mechanism: ShortStr = "PLAIN"
    response: LongStr = b""
    locale: ShortStr = "en_US"


@_method(10, 20, "connection.secure")
class ConnectionSecure(Method, frozen=True):
    challenge: LongStr = b""


@_method(10, 21, "connection.secure-ok")
class ConnectionSecureOk(Method, frozen=True):
    response: LongStr = b""


@_method(10, 30, "connection.tune")
class ConnectionTune(Method, frozen=True):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@_method(10, 31, "connection.tune-ok")
class ConnectionTuneOk(Method, frozen=True):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@_method(10, 40, "connection.open")
class ConnectionOpen(Method, frozen=True):
    virtual_host: ShortStr = "/"
    reserved_1: ClassVar[ShortStr] = ""
    reserved_2: ClassVar[Bit] = False


@_method(10, 41, "connection.open-ok")
class ConnectionOpenOk(Method, frozen=True):
    reserved_1: ClassVar[ShortStr] = ""


@_method(10, 50, "connection.close")
class ConnectionClose(Method, frozen=True):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    failed_class: Short = 0
    failed_method: Short = 0


@_method(10, 51, "connection.close-ok")
class ConnectionCloseOk(Method, frozen=True): ...


@_method(10, 60, "connection.blocked")
class ConnectionBlocked(Method, frozen=True):
    reason: ShortStr = ""


@_method(10, 61, "connection.unblocked")
class ConnectionUnblocked(Method, frozen=True): ...


@_method(10, 70, "connection.update-secret")
class ConnectionUpdateSecret(Method, frozen=True):
    new_secret: LongStr = b""
    reason: ShortStr = ""


@_method(10, 71, "connection.update-secret-ok")
class ConnectionUpdateSecretOk(Method, frozen=True): ...


# ── channel ───────────────────────────────────────────────────────────────────────────────────────


@_method(20, 10, "channel.open")
class ChannelOpen(Method, frozen=True):
    reserved_1: ClassVar[ShortStr] = ""


@_method(20, 11, "channel.open-ok")
class ChannelOpenOk(Method, frozen=True):
    reserved_1: ClassVar[LongStr] = b""


@_method(20, 20, "channel.flow")
class ChannelFlow(Method, frozen=True):
    active: Bit = False


@_method(20, 21, "channel.flow-ok")
class ChannelFlowOk(Method, frozen=True):
    active: Bit = False


@_method(20, 40, "channel.close")
class ChannelClose(Method, frozen=True):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    failed_class: Short = 0
    failed_method: Short = 0


@_method(20, 41, "channel.close-ok")
class ChannelCloseOk(Method, frozen=True): ...


# ── access: removed in 0-9-1, but old clients still send it ───────────────────────────────────────


@_method(30, 10, "access.request")
class AccessRequest(Method, frozen=True):
    realm: ShortStr = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@_method(30, 11, "access.request-ok")
class AccessRequestOk(Method, frozen=True):
    reserved_1: ClassVar[Short] = 1


# ── exchange ──────────────────────────────────────────────────────────────────────────────────────


@_method(40, 10, "exchange.declare")
class ExchangeDeclare(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    exchange: ShortStr = ""
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


@_method(40, 11, "exchange.declare-ok")
class ExchangeDeclareOk(Method, frozen=True): ...


@_method(40, 20, "exchange.delete")
class ExchangeDelete(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    no_wait: Bit = False


@_method(40, 21, "exchange.delete-ok")
class ExchangeDeleteOk(Method, frozen=True): ...


@_method(40, 30, "exchange.bind")
class ExchangeBind(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


@_method(40, 31, "exchange.bind-ok")
class ExchangeBindOk(Method, frozen=True): ...


@_method(40, 40, "exchange.unbind")
class ExchangeUnbind(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


@_method(40, 51, "exchange.unbind-ok")
class ExchangeUnbindOk(Method, frozen=True): ...


# ── queue ─────────────────────────────────────────────────────────────────────────────────────────


@_method(50, 10, "queue.declare")
class QueueDeclare(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


@_method(50, 11, "queue.declare-ok")
class QueueDeclareOk(Method, frozen=True):
    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


@_method(50, 20, "queue.bind")
class QueueBind(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    no_wait: Bit = False
    arguments: Table = {}


@_method(50, 21, "queue.bind-ok")
class QueueBindOk(Method, frozen=True): ...


@_method(50, 30, "queue.purge")
class QueuePurge(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    no_wait: Bit = False


@_method(50, 31, "queue.purge-ok")
class QueuePurgeOk(Method, frozen=True):
    message_count: Long = 0


@_method(50, 40, "queue.delete")
class QueueDelete(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@_method(50, 41, "queue.delete-ok")
class QueueDeleteOk(Method, frozen=True):
    message_count: Long = 0


@_method(50, 50, "queue.unbind")
class QueueUnbind(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = {}


@_method(50, 51, "queue.unbind-ok")
class QueueUnbindOk(Method, frozen=True): ...


# ── basic ─────────────────────────────────────────────────────────────────────────────────────────


@_method(60, 10, "basic.qos")
class BasicQos(Method, frozen=True):
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


@_method(60, 11, "basic.qos-ok")
class BasicQosOk(Method, frozen=True): ...


@_method(60, 20, "basic.consume")
class BasicConsume(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    no_wait: Bit = False
    arguments: Table = {}


@_method(60, 21, "basic.consume-ok")
class BasicConsumeOk(Method, frozen=True):
    consumer_tag: ShortStr = ""


@_method(60, 30, "basic.cancel")
class BasicCancel(Method, frozen=True):
    consumer_tag: ShortStr = ""
    no_wait: Bit = False


@_method(60, 31, "basic.cancel-ok")
class BasicCancelOk(Method, frozen=True):
    consumer_tag: ShortStr = ""


@_method(60, 40, "basic.publish", content=True)
class BasicPublish(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@_method(60, 50, "basic.return", content=True)
class BasicReturn(Method, frozen=True):
    reply_code: Short = 0
    reply_text: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@_method(60, 60, "basic.deliver", content=True)
class BasicDeliver(Method, frozen=True):
    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@_method(60, 70, "basic.get")
class BasicGet(Method, frozen=True):
    reserved_1: ClassVar[Short] = 0
    queue: ShortStr = ""
    no_ack: Bit = False


@_method(60, 71, "basic.get-ok", content=True)
class BasicGetOk(Method, frozen=True):
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


@_method(60, 72, "basic.get-empty")
class BasicGetEmpty(Method, frozen=True):
    reserved_1: ClassVar[ShortStr] = ""


@_method(60, 80, "basic.ack")
class BasicAck(Method, frozen=True):
    delivery_tag: LongLong = 0
    multiple: Bit = False


@_method(60, 90, "basic.reject")
class BasicReject(Method, frozen=True):
    delivery_tag: LongLong = 0
    requeue: Bit = True


@_method(60, 100, "basic.recover-async")
class BasicRecoverAsync(Method, frozen=True):
    requeue: Bit = False


@_method(60, 110, "basic.recover")
class BasicRecover(Method, frozen=True):
    requeue: Bit = False


@_method(60, 111, "basic.recover-ok")
class BasicRecoverOk(Method, frozen=True): ...


@_method(60, 120, "basic.nack")
class BasicNack(Method, frozen=True):
    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


# ── confirm ───────────────────────────────────────────────────────────────────────────────────────


@_method(85, 10, "confirm.select")
class ConfirmSelect(Method, frozen=True):
    no_wait: Bit = False


@_method(85, 11, "confirm.select-ok")
class ConfirmSelectOk(Method, frozen=True): ...


# ── tx ────────────────────────────────────────────────────────────────────────────────────────────


@_method(90, 10, "tx.select")
class TxSelect(Method, frozen=True): ...


@_method(90, 11, "tx.select-ok")
class TxSelectOk(Method, frozen=True): ...


@_method(90, 20, "tx.commit")
class TxCommit(Method, frozen=True): ...


@_method(90, 21, "tx.commit-ok")
class TxCommitOk(Method, frozen=True): ...


@_method(90, 30, "tx.rollback")
class TxRollback(Method, frozen=True): ...


@_method(90, 31, "tx.rollback-ok")
class TxRollbackOk(Method, frozen=True): ...
