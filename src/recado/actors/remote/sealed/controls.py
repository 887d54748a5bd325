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
from recado.actors.failing.signals import (
    CellSignal,
    Down,
    Ended,
    Exhausted,
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
from recado.actors.ref import ActorRef
from recado.actors.remote.faults import BadEnvelope

from .envelope_pb2 import Failure
from .failures import read_failure, write_failure

SignalName: TypeAlias = Literal[
    "down", "link", "unlink", "restart", "stop", "failed", "ended", "watch", "unwatch", "tie", "untie", "exit"
]  # fmt: skip

# Whoever may send these rules over the actors of the other node.
COMMANDING: Final[frozenset[SignalName]] = frozenset(
    ("link", "unlink", "restart", "stop", "tie", "untie", "exit")
)


Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    pass


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    pass


class Signalled(msgspec.Struct, frozen=True, array_like=True, tag="signal"):
    name: SignalName
    ref: str = ""  # the other actor that it is about
    reason: bytes = b""  # a Failure
    token: Natural = 0  # of the bond that it makes, or follows from (watching/watch.py)
    uid: Natural = 0  # of the actor that it is for, if the target is a name of which that is known


class Identified(msgspec.Struct, frozen=True, array_like=True, tag="identified"):
    """For the actor that sent the watch, link or tie."""

    ref: str  # the full address of the actor that was called by its name
    token: Natural


class Create(msgspec.Struct, frozen=True, array_like=True, tag="create"):
    kind: str  # as the class was offered
    name: str
    serialisation: int
    arguments: bytes  # a list
    supervisor: str  # an address, or nothing
    temporary: bool
    token: str = ""


class Move(msgspec.Struct, frozen=True, array_like=True, tag="move"):
    token: str
    kind: str
    name: str
    serialisation: int
    manifest: str
    state: bytes
    temporary: bool


class Abandon(msgspec.Struct, frozen=True, array_like=True, tag="abandon"):
    token: str


Control: TypeAlias = Ping | Pong | Signalled | Identified | Create | Move | Abandon

MANIFEST: Final = "recado.control"
_UNSAID: Final = ActorError("another node did not say why")
_MADE_OF_A_REF: Final[dict[SignalName, Callable[[ActorRef[Any]], CellSignal]]] = {
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
        raise BadEnvelope(f"not a control: {error}") from None
    return control


def write_signal(signal: CellSignal, called: str = "", token: int = 0, uid: int = 0) -> Signalled:
    """`called` is how the other side calls the actor in it, if not by its own address."""
    said = _write_signal(signal, called)
    return msgspec.structs.replace(said, token=token, uid=uid) if token or uid else said


def _write_signal(signal: CellSignal, called: str) -> Signalled:
    match signal:
        case Down(ref, reason):
            return Signalled("down", called or str(ref), _reason(reason))
        case Failed(ref, reason):
            return Signalled("failed", called or str(ref), _reason(reason))
        case Ended(ref, reason):
            return Signalled("ended", called or str(ref), _reason(reason))
        case Exit(ref, reason):
            return Signalled("exit", called or str(ref), _reason(reason))
        case Restart(reason):
            return Signalled("restart", "", _reason(reason))
        case Stop(reason):
            return Signalled("stop", "", _reason(reason))
        case Link(ref):
            return Signalled("link", str(ref))
        case Unlink(ref):
            return Signalled("unlink", str(ref))
        case Watch(ref):
            return Signalled("watch", str(ref))
        case Unwatch(ref):
            return Signalled("unwatch", str(ref))
        case Tie(ref):
            return Signalled("tie", called or str(ref))
        case Untie(ref):
            return Signalled("untie", called or str(ref))
        case Exhausted():
            raise AssertionError("a supervisor says this only to itself")


def read_signal(said: Signalled, ref: ActorRef[Any] | None) -> CellSignal:
    """`ref` is what `said.ref` means here. Raises BadEnvelope."""
    match said.name:
        case "stop":
            return Stop(_exception(said.reason))
        case "restart":
            return Restart(_exception(said.reason) or _UNSAID)
        case name if ref is not None:
            return _read_about(name, ref, _exception(said.reason))
        case name:
            raise BadEnvelope(f"a {name} that names no actor")


def _read_about(name: SignalName, ref: ActorRef[Any], reason: Exception | None) -> CellSignal:
    match name:
        case "down":
            return Down(ref, reason)
        case "failed":
            return Failed(ref, reason or _UNSAID)
        case "ended":
            return Ended(ref, reason)
        case "exit":
            return Exit(ref, reason or _UNSAID)
        case _:
            return _MADE_OF_A_REF[name](ref)


def _reason(reason: BaseException | None) -> bytes:
    return b"" if reason is None else write_failure(reason).SerializeToString()


def _exception(reason: bytes) -> Exception | None:
    if not reason:
        return None
    try:
        return read_failure(Failure.FromString(reason))
    except DecodeError:
        raise BadEnvelope("a reason that is no failure") from None
