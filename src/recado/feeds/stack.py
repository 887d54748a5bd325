"""Stacks: the layers of a feed, from the application down to the transport, as text:

    DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP

The same text can be used for publishers, subscribers and archives; each role builds the layers that apply to
it. `Stack.parse` rejects an invalid text with a StackError that names the position, the reason and a fix.
`register_layer` adds custom layers.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from .boundary import ArchiveState
from .errors import FeedError
from .layer import Layer, MemberContext
from .layers.archiver import ArchiverLayer
from .layers.dispatch import DispatchLayer
from .layers.fifo import FifoLayer, SequencerLayer
from .layers.frag import FragLayer
from .layers.membership import MembershipLayer
from .layers.nak import NakMemberLayer, NakPublisherLayer
from .layers.publisher_heartbeat import PublisherHeartbeatLayer
from .layers.pull import PullLayer
from .layers.receive_buffer import ReceiveBuffer
from .layers.sync import SyncLayer
from .layers.total import TotalLayer
from .layers.transport import TransportLayer
from .layers.uniform import UniformLayer
from .vector import Vector
from .views import NO_VIEW, Role

SUBSCRIBER_STACK: Final = "DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"
ARCHIVE_STACK: Final = "DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"
PUBLISHER_STACK: Final = "DISPATCH:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"
TRANSPORT_LAYERS: Final = ("AMQP", "UDP")


class StackError(FeedError, ValueError):
    """An invalid stack text; the message names the position, the problem and a fix."""


class LayerParts(NamedTuple):
    """The arguments of layer factories."""

    context: MemberContext
    receive_buffer: ReceiveBuffer
    archive_state: ArchiveState | None


LayerFactory = Callable[[LayerParts], Layer]

_BUILT_IN_LAYERS: Final[dict[str, dict[Role, LayerFactory]]] = {
    "DISPATCH": dict.fromkeys(Role, lambda parts: DispatchLayer(parts.context)),
    "SYNC": {Role.SUBSCRIBER: lambda parts: SyncLayer(parts.context, parts.receive_buffer)},
    "ARCHIVER": {Role.ARCHIVE: lambda parts: _build_archiver(parts)},
    "UNIFORM": {Role.SUBSCRIBER: lambda parts: UniformLayer(parts.context)},
    "TOTAL": dict.fromkeys(
        (Role.SUBSCRIBER, Role.ARCHIVE),
        lambda parts: TotalLayer(parts.context, parts.receive_buffer),
    ),
    "PULL": dict.fromkeys(
        (Role.SUBSCRIBER, Role.ARCHIVE),
        lambda parts: PullLayer(parts.context, parts.receive_buffer),
    ),
    "FRAG": dict.fromkeys(Role, lambda parts: FragLayer(parts.context)),
    "FIFO": {
        Role.PUBLISHER: lambda parts: SequencerLayer(parts.context),
        **dict.fromkeys((Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: _build_fifo(parts)),
    },
    "NAK": {
        Role.PUBLISHER: lambda parts: NakPublisherLayer(parts.context),
        **dict.fromkeys(
            (Role.SUBSCRIBER, Role.ARCHIVE),
            lambda parts: NakMemberLayer(parts.context, parts.receive_buffer),
        ),
    },
    "MEMBERSHIP": {
        Role.PUBLISHER: lambda parts: PublisherHeartbeatLayer(parts.context),
        **dict.fromkeys((Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: _build_membership(parts)),
    },
    **dict.fromkeys(
        TRANSPORT_LAYERS, dict.fromkeys(Role, lambda parts: TransportLayer(parts.context))
    ),
}
_registered_layers: dict[str, type[Layer]] = {}

# (upper layer, lower layer, reason); a pair applies only if both layers are present.
_ORDER: Final = (
    ("SYNC", "ARCHIVER", "SYNC merges archived and live messages"),
    ("SYNC", "UNIFORM", "SYNC holds live messages that have passed UNIFORM"),
    ("SYNC", "PULL", "SYNC needs live messages without gaps"),
    ("ARCHIVER", "TOTAL", "archives store messages in the order of delivery"),
    ("ARCHIVER", "PULL", "PULL passes requests that it cannot answer up to ARCHIVER"),
    ("UNIFORM", "TOTAL", "UNIFORM delays messages without reordering them"),
    ("UNIFORM", "PULL", "PULL must see messages that UNIFORM holds back"),
    ("TOTAL", "PULL", "PULL must see messages that TOTAL holds back"),
    ("PULL", "FRAG", "replies of PULL may need fragments"),
    ("TOTAL", "FRAG", "only complete messages can be ordered"),
    ("FRAG", "FIFO", "FRAG needs fragments in order and without gaps"),
    ("FIFO", "NAK", "NAK fills the gaps that FIFO detects"),
    ("NAK", "MEMBERSHIP", "MEMBERSHIP handles packets about members first"),
)
# (layer, required layer, reason)
_REQUIREMENTS: Final = (
    ("FIFO", "NAK", "no other layer fills gaps"),
    ("SYNC", "MEMBERSHIP", "recovery starts at a view"),
    ("PULL", "MEMBERSHIP", "it requests messages from members"),
    ("ARCHIVER", "MEMBERSHIP", "an archive records views"),
    ("ARCHIVER", "PULL", "archives request missing messages from each other"),
    ("UNIFORM", "MEMBERSHIP", "it needs to know the archives"),
    ("TOTAL", "MEMBERSHIP", "a member of the view is the sequencer"),
    ("TOTAL", "PULL", "positions in the order may get lost"),
)


def register_layer(name: str, layer: type[Layer]) -> None:
    """Register a custom layer under an upper-case name. Its class is called with the MemberContext, for every
    role. A layer that changes messages belongs directly below DISPATCH, because archives store the messages
    that pass ARCHIVER.

    Raises StackError if the name is invalid, or another layer has it.
    """
    if not name.isidentifier() or name != name.upper():
        raise StackError(f"invalid layer name {name!r}: use capital letters, digits and _")
    if name in _BUILT_IN_LAYERS or _registered_layers.get(name, layer) is not layer:
        raise StackError(f"layer {name} is already registered")
    _registered_layers[name] = layer


class Stack(Struct, frozen=True):
    """A valid stack, top to bottom; made by `parse`."""

    names: tuple[str, ...]

    @property
    def transport(self) -> str:
        return self.names[-1]

    def __str__(self) -> str:
        return ":".join(self.names)

    @classmethod
    def parse(cls, text: str) -> "Stack":
        """Parse and check a text. Raises StackError."""
        names: list[str] = []
        at = 0
        for name in text.split(":"):
            _check_name(text, at, name, names)
            names.append(name)
            at += len(name) + 1
        _check_completeness(text, names)
        return cls(tuple(names))

    def build(self, parts: LayerParts) -> list[Layer]:
        """Return the layers that apply to the role, connected, top to bottom. Raises StackError."""
        role = parts.context.role
        if role is Role.ARCHIVE and "ARCHIVER" not in self.names:
            raise StackError(
                f'stack "{self}" has no ARCHIVER, which an archive needs: "{ARCHIVE_STACK}"'
            )
        layers: list[Layer] = []
        for name in self.names:
            if name in _registered_layers:
                layers.append(_registered_layers[name](parts.context))
            elif role in _BUILT_IN_LAYERS[name]:
                layers.append(_BUILT_IN_LAYERS[name][role](parts))
        for i, layer in enumerate(layers):
            above = layers[i - 1].up if i else Layer.up.__get__(layer)
            below = layers[i + 1].down if i + 1 < len(layers) else Layer.down.__get__(layer)
            layer.link(above, below)
        return layers


def _check_name(text: str, at: int, name: str, before: list[str]) -> None:
    if name not in _BUILT_IN_LAYERS and name not in _registered_layers:
        known = ", ".join((*_BUILT_IN_LAYERS, *_registered_layers))
        problem = f"unknown layer {name!r}" if name else "missing name"
        raise _stack_error(text, at, f"{problem}; the layers are {known}")
    if name in before:
        raise _stack_error(text, at, f"{name} occurs twice")
    for other in before:
        if other in TRANSPORT_LAYERS:
            raise _stack_error(
                text, at, f"{name} is below {other}; there is one transport, at the end"
            )
        for upper, lower, why in _ORDER:
            if (upper, lower) == (name, other):
                raise _stack_error(text, at, f"{name} must be above {other}: {why}")


def _check_completeness(text: str, names: list[str]) -> None:
    if names[0] != "DISPATCH":
        raise _stack_error(text, 0, "DISPATCH must be first: it delivers to the application")
    if names[-1] not in TRANSPORT_LAYERS:
        transports = " or ".join(TRANSPORT_LAYERS)
        raise _stack_error(text, len(text), f"missing transport at the end: {transports}")
    if "FIFO" not in names:
        raise _stack_error(text, len(text), "missing FIFO: every feed needs it")
    for name, needed, why in _REQUIREMENTS:
        if name in names and needed not in names:
            raise _stack_error(text, text.index(name), f"{name} needs {needed}: {why}")


def _stack_error(text: str, at: int, problem: str) -> StackError:
    return StackError(f'invalid stack "{text}", at character {at + 1}: {problem}')


# --- layers that need more than the context ---


def _build_fifo(parts: LayerParts) -> Layer:
    stored = parts.archive_state
    start_vector = stored.vector if stored is not None and (stored.vector or stored.views) else None
    return FifoLayer(parts.context, parts.receive_buffer, start_vector)


def _build_membership(parts: LayerParts) -> Layer:
    views = parts.archive_state.views if parts.archive_state is not None else ()
    last = max((record.view.id for record in views), default=NO_VIEW)
    return MembershipLayer(parts.context, parts.receive_buffer, last)


def _build_archiver(parts: LayerParts) -> Layer:
    return ArchiverLayer(
        parts.context, parts.receive_buffer, parts.archive_state or ArchiveState(Vector())
    )
