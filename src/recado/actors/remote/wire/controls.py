"""Control messages: messages between nodes, not between their actors.

They are a closed union in MessagePack, independent of the registry of application messages.

    Ping, Pong        heartbeat and its answer
    RemoteSignal      a signal for an actor (supervision/signals.py), with its reason as a Failure
    ActorIdentified   which actor has the name to which a watch, link or tie was sent
    CreateActor       start an actor of an offered class; answered by its address
    MoveActor         start a moved actor from its state; answered by its new address
    AbandonActor      stop the actor created or moved with this token: its requester has given up
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

PRIVILEGED_SIGNALS: Final[frozenset[SignalName]] = frozenset(
    ("link", "unlink", "restart", "stop", "tie", "untie", "exit")
)
"""Signals that stop, restart or supervise actors of the receiving node: refused from untrusted peers."""


NonNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    pass


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    pass


class RemoteSignal(msgspec.Struct, frozen=True, array_like=True, tag="signal"):
    """A signal for the actor that is the target of the envelope."""

    name: SignalName
    ref: str = ""  # address of the other actor of the signal
    reason: bytes = b""  # an encoded Failure
    token: NonNegative = 0  # of the relation it creates or belongs to (monitoring/relations.py)
    uid: NonNegative = 0  # of the target actor, if it is addressed by name and the uid is known


class ActorIdentified(msgspec.Struct, frozen=True, array_like=True, tag="identified"):
    """Sent to the actor that sent a watch, link or tie to a name."""

    ref: str  # full address of the actor with that name
    token: NonNegative


class CreateActor(msgspec.Struct, frozen=True, array_like=True, tag="create"):
    class_name: str  # as the receiving node offers it
    name: str
    format_id: int
    arguments: bytes  # a serialized list
    supervisor: str  # an address, or empty
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
_UNKNOWN_REASON: Final = ActorError("the other node gave no reason")
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
    """Raises InvalidEnvelopeError."""
    try:
        control: Control = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidEnvelopeError(f"not a control message: {error}") from None
    return control


def encode_signal(
    signal: CellSignal, alias: str = "", token: int = 0, uid: int = 0
) -> RemoteSignal:
    """Return the control message for a signal.

    `alias` is how the other node addresses the actor in the signal, if not by its full address. The signals of
    a supervisor or watcher have none: the other node knows it by the full address in its first signal.
    """
    message = _encode_signal(signal, alias)
    return msgspec.structs.replace(message, token=token, uid=uid) if token or uid else message


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
            raise AssertionError("ChildFailed never leaves its node")


def decode_signal(message: RemoteSignal, ref: ActorRef[Any] | None) -> CellSignal:
    """Return the signal; `ref` is the local reference for `message.ref`. Raises InvalidEnvelopeError."""
    match message.name:
        case "stop":
            return Stop(_decode_reason(message.reason))
        case "restart":
            return Restart(_decode_reason(message.reason) or _UNKNOWN_REASON)
        case name if ref is not None:
            return _decode_ref_signal(name, ref, _decode_reason(message.reason))
        case name:
            raise InvalidEnvelopeError(f"signal {name} without an actor")


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
        raise InvalidEnvelopeError("the reason of a signal is not a Failure") from None
