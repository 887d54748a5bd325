"""What nodes say to each other, beside what their actors do.

They are a closed union in MessagePack, each with its own name: nothing of an application is among them, and the
catalogue of messages is not asked.

    Ping, Pong     a sign of life, asked for and given
    Signalled      a signal for an actor (signals.py), with the reason as a failure
    Identified     which actor has the name that a watch, link or tie was sent to
    Create         start an actor of a class that this node offers; answered by its address
    Move           take over an actor that moves here, with its state; answered by its new address
    Abandon        the one with this token is not wanted after all: what was made of it is to go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from google.protobuf.message import DecodeError

from recado.actors.errors import ActorError
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import InvalidEnvelopeError
from recado.actors.supervision.signals import (
    CellSignal,
    ChildFailed,
    Down,
    Ended,
    Exit,
    Failed,
    Link,
    Restart,
    Stop,
    Tie,
    Unlink,
    Untie,
    Unwatch,
    Watch,
)

from .envelope_pb2 import Failure
from .failures import decode_exception, encode_exception

SignalName: TypeAlias = Literal[
    "down", "link", "unlink", "restart", "stop", "failed", "ended", "watch", "unwatch", "tie", "untie", "exit"
]  # fmt: skip

# Whoever may send these rules over the actors of the other node.
PRIVILEGED_SIGNALS: Final[frozenset[SignalName]] = frozenset(
    ("link", "unlink", "restart", "stop", "tie", "untie", "exit")
)


NonNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    pass


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    pass


class RemoteSignal(msgspec.Struct, frozen=True, array_like=True, tag="signal"):
    name: SignalName
    ref: str = ""  # the other actor that it is about
    reason: bytes = b""  # a Failure
    token: NonNegative = 0  # of the bond that it makes, or follows from (monitoring/relations.py)
    uid: NonNegative = (
        0  # of the actor that it is for, if the target is a name of which that is known
    )


class ActorIdentified(msgspec.Struct, frozen=True, array_like=True, tag="identified"):
    """For the actor that sent the watch, link or tie."""

    ref: str  # the full address of the actor that was called by its name
    token: NonNegative


class CreateActor(msgspec.Struct, frozen=True, array_like=True, tag="create"):
    class_name: str  # as the class was offered
    name: str
    format_id: int
    arguments: bytes  # a list
    supervisor: str  # an address, or nothing
    temporary: bool
    token: str = ""


class MoveActor(msgspec.Struct, frozen=True, array_like=True, tag="move"):
    token: str
    class_name: str
    name: str
    format_id: int
    manifest: str
    state: bytes
    temporary: bool


class AbandonActor(msgspec.Struct, frozen=True, array_like=True, tag="abandon"):
    token: str


Control: TypeAlias = (
    Ping | Pong | RemoteSignal | ActorIdentified | CreateActor | MoveActor | AbandonActor
)

CONTROL_MANIFEST: Final = "recado.control"
_UNKNOWN_REASON: Final = ActorError("another node did not say why")
_REF_SIGNALS: Final[dict[SignalName, Callable[[ActorRef[Any]], CellSignal]]] = {
    "link": Link,
    "unlink": Unlink,
    "watch": Watch,
    "unwatch": Unwatch,
    "tie": Tie,
    "untie": Untie,
}
encode_control = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Control).decode


def decode_control(body: bytes) -> Control:
    """Raises BadEnvelope."""
    try:
        control: Control = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidEnvelopeError(f"not a control: {error}") from None
    return control


def encode_signal(
    signal: CellSignal, alias: str = "", token: int = 0, uid: int = 0
) -> RemoteSignal:
    """`alias` is how the other side calls the actor in it, if not by its own address."""
    said = _encode_signal(signal, alias)
    return msgspec.structs.replace(said, token=token, uid=uid) if token or uid else said


def _encode_signal(signal: CellSignal, alias: str) -> RemoteSignal:
    match signal:
        case Down(ref, reason):
            return RemoteSignal("down", alias or str(ref), _encode_reason(reason))
        case Failed(ref, reason):
            return RemoteSignal("failed", alias or str(ref), _encode_reason(reason))
        case Ended(ref, reason):
            return RemoteSignal("ended", alias or str(ref), _encode_reason(reason))
        case Exit(ref, reason):
            return RemoteSignal("exit", alias or str(ref), _encode_reason(reason))
        case Restart(reason):
            return RemoteSignal("restart", "", _encode_reason(reason))
        case Stop(reason):
            return RemoteSignal("stop", "", _encode_reason(reason))
        case Link(ref):
            return RemoteSignal("link", str(ref))
        case Unlink(ref):
            return RemoteSignal("unlink", str(ref))
        case Watch(ref):
            return RemoteSignal("watch", str(ref))
        case Unwatch(ref):
            return RemoteSignal("unwatch", str(ref))
        case Tie(ref):
            return RemoteSignal("tie", alias or str(ref))
        case Untie(ref):
            return RemoteSignal("untie", alias or str(ref))
        case ChildFailed():
            raise AssertionError("a supervisor says this only to itself")


def decode_signal(message: RemoteSignal, ref: ActorRef[Any] | None) -> CellSignal:
    """`ref` is what `said.ref` means here. Raises BadEnvelope."""
    match message.name:
        case "stop":
            return Stop(_decode_reason(message.reason))
        case "restart":
            return Restart(_decode_reason(message.reason) or _UNKNOWN_REASON)
        case name if ref is not None:
            return _decode_ref_signal(name, ref, _decode_reason(message.reason))
        case name:
            raise InvalidEnvelopeError(f"a {name} that names no actor")


def _decode_ref_signal(
    name: SignalName, ref: ActorRef[Any], reason: Exception | None
) -> CellSignal:
    match name:
        case "down":
            return Down(ref, reason)
        case "failed":
            return Failed(ref, reason or _UNKNOWN_REASON)
        case "ended":
            return Ended(ref, reason)
        case "exit":
            return Exit(ref, reason or _UNKNOWN_REASON)
        case _:
            return _REF_SIGNALS[name](ref)


def _encode_reason(reason: BaseException | None) -> bytes:
    return b"" if reason is None else encode_exception(reason).SerializeToString()


def _decode_reason(reason: bytes) -> Exception | None:
    if not reason:
        return None
    try:
        return decode_exception(Failure.FromString(reason))
    except DecodeError:
        raise InvalidEnvelopeError("a reason that is no failure") from None
