"""A stack: which layers a feed has, from the application down to the transport, as a text such as

    DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:REACH:AMQP

One text may be given to publishers, subscribers and archives alike; each takes the layers that it plays. A
text that cannot work is refused with a StackError that says where, why, and what would be right. `register`
makes a layer of one's own known.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from .boundary import ArchiveState
from .layer import Layer, Site
from .layers.archiver import Archiver
from .layers.dispatch import Dispatch
from .layers.fifo import Fifo, Numbering
from .layers.frag import Frag
from .layers.nak import NakMember, NakPublisher
from .layers.pull import PullLayer
from .layers.pulse import Pulse
from .layers.reach import Reach
from .layers.reception import Reception
from .layers.sync import Sync
from .layers.total import Total
from .layers.transport import Transport
from .layers.uniform import Uniform
from .vector import Vector
from .views import NO_VIEW, Role

SUBSCRIBER: Final = "DISPATCH:SYNC:PULL:FRAG:FIFO:NAK:REACH:AMQP"
ARCHIVE: Final = "DISPATCH:SYNC:ARCHIVER:PULL:FRAG:FIFO:NAK:REACH:AMQP"
PUBLISHER: Final = "DISPATCH:FRAG:FIFO:NAK:REACH:AMQP"
TRANSPORTS: Final = ("AMQP", "UDP")


class StackError(ValueError):
    """Says where in the text, what is wrong, and what would be right."""


class Parts(NamedTuple):
    """What layers are made of."""

    site: Site
    reception: Reception
    stored: ArchiveState | None


Maker = Callable[[Parts], Layer]

_BUILT_IN: Final[dict[str, dict[Role, Maker]]] = {
    "DISPATCH": dict.fromkeys(Role, lambda parts: Dispatch(parts.site)),
    "SYNC": {Role.SUBSCRIBER: lambda parts: Sync(parts.site, parts.reception)},
    "ARCHIVER": {Role.ARCHIVE: lambda parts: _archiver(parts)},
    "UNIFORM": {Role.SUBSCRIBER: lambda parts: Uniform(parts.site)},
    "TOTAL": dict.fromkeys(
        (Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: Total(parts.site, parts.reception)
    ),
    "PULL": dict.fromkeys(
        (Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: PullLayer(parts.site, parts.reception)
    ),
    "FRAG": dict.fromkeys(Role, lambda parts: Frag(parts.site)),
    "FIFO": {
        Role.PUBLISHER: lambda parts: Numbering(parts.site),
        **dict.fromkeys((Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: _fifo(parts)),
    },
    "NAK": {
        Role.PUBLISHER: lambda parts: NakPublisher(parts.site),
        **dict.fromkeys(
            (Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: NakMember(parts.site, parts.reception)
        ),
    },
    "REACH": {
        Role.PUBLISHER: lambda parts: Pulse(parts.site),
        **dict.fromkeys((Role.SUBSCRIBER, Role.ARCHIVE), lambda parts: _reach(parts)),
    },
    **dict.fromkeys(TRANSPORTS, dict.fromkeys(Role, lambda parts: Transport(parts.site))),
}
_registered: dict[str, type[Layer]] = {}

# Who must be above whom, and why. Each pair counts only if both are there.
_ORDER: Final = (
    ("SYNC", "ARCHIVER", "SYNC puts together what archives and the live flow bring"),
    ("SYNC", "UNIFORM", "SYNC holds live messages that UNIFORM has let pass"),
    ("SYNC", "PULL", "SYNC needs a live flow without gaps"),
    ("ARCHIVER", "TOTAL", "an archive stores in the order in which all deliver"),
    ("ARCHIVER", "PULL", "PULL passes to ARCHIVER what it cannot answer itself"),
    ("UNIFORM", "TOTAL", "UNIFORM waits without changing the order"),
    ("UNIFORM", "PULL", "PULL can give others only what UNIFORM has not held back"),
    ("TOTAL", "PULL", "PULL can give others only what TOTAL has not held back"),
    ("PULL", "FRAG", "what PULL answers may need fragments"),
    ("TOTAL", "FRAG", "only whole messages can be ordered"),
    ("FRAG", "FIFO", "FRAG needs fragments in order and without gaps"),
    ("FIFO", "NAK", "NAK gets the gaps filled that FIFO finds"),
    ("NAK", "REACH", "REACH decides about members before anybody asks them"),
)
_NEEDS: Final = (
    ("FIFO", "NAK", "nobody else gets gaps filled"),
    ("SYNC", "REACH", "recovery begins at a view"),
    ("PULL", "REACH", "it has to know whom to ask"),
    ("ARCHIVER", "REACH", "an archive records views"),
    ("ARCHIVER", "PULL", "archives get from each other what they lack"),
    ("UNIFORM", "REACH", "it has to know the archives"),
    ("TOTAL", "REACH", "a member of the view says the order"),
    ("TOTAL", "PULL", "places in the order may get lost"),
)


def register(name: str, layer: type[Layer]) -> None:
    """Make a layer known under this name. Its class is called with the site, for every role; one that changes
    messages belongs directly below DISPATCH, because archives store what passes ARCHIVER."""
    if not name.isidentifier() or name != name.upper():
        raise StackError(f"{name!r} is no name for a layer: letters, digits and _, in capitals")
    if name in _BUILT_IN or _registered.get(name, layer) is not layer:
        raise StackError(f"there is a layer {name} already")
    _registered[name] = layer


class Stack(Struct, frozen=True):
    """The layers, top to bottom. Use `parse`."""

    names: tuple[str, ...]

    @property
    def transport(self) -> str:
        return self.names[-1]

    def __str__(self) -> str:
        return ":".join(self.names)

    @classmethod
    def parse(cls, text: str) -> "Stack":
        names: list[str] = []
        at = 0
        for name in text.split(":"):
            _check_name(text, at, name, names)
            names.append(name)
            at += len(name) + 1
        _check_whole(text, names)
        return cls(tuple(names))

    def build(self, parts: Parts) -> list[Layer]:
        """The layers that this role plays, linked, top to bottom."""
        role = parts.site.role
        if role is Role.ARCHIVE and "ARCHIVER" not in self.names:
            raise StackError(
                f'the stack "{self}" has no ARCHIVER, which makes an archive: "{ARCHIVE}"'
            )
        layers: list[Layer] = []
        for name in self.names:
            if name in _registered:
                layers.append(_registered[name](parts.site))
            elif role in _BUILT_IN[name]:
                layers.append(_BUILT_IN[name][role](parts))
        for i, layer in enumerate(layers):
            above = layers[i - 1].up if i else Layer.up.__get__(layer)
            below = layers[i + 1].down if i + 1 < len(layers) else Layer.down.__get__(layer)
            layer.link(above, below)
        return layers


def _check_name(text: str, at: int, name: str, before: list[str]) -> None:
    if name not in _BUILT_IN and name not in _registered:
        known = ", ".join((*_BUILT_IN, *_registered))
        what = f"there is no layer {name!r}" if name else "a name is missing"
        raise _wrong(text, at, f"{what}; known are {known}")
    if name in before:
        raise _wrong(text, at, f"{name} is there twice; once is enough")
    for other in before:
        if other in TRANSPORTS:
            raise _wrong(
                text, at, f"{name} is below {other}; the transport comes last, and there is one"
            )
        for upper, lower, why in _ORDER:
            if (upper, lower) == (name, other):
                raise _wrong(text, at, f"{name} must be above {other}: {why}")


def _check_whole(text: str, names: list[str]) -> None:
    if names[0] != "DISPATCH":
        raise _wrong(text, 0, "DISPATCH comes first: it hands over to the application")
    if names[-1] not in TRANSPORTS:
        transports = " or ".join(TRANSPORTS)
        raise _wrong(text, len(text), f"a transport is missing at the end: {transports}")
    if "FIFO" not in names:
        raise _wrong(text, len(text), "FIFO is missing: the least that a feed promises is order")
    for name, needed, why in _NEEDS:
        if name in names and needed not in names:
            raise _wrong(text, text.index(name), f"{name} needs {needed}: {why}")


def _wrong(text: str, at: int, what: str) -> StackError:
    return StackError(f'in the stack "{text}", at character {at + 1}: {what}')


# --- layers that need more than the site ---


def _fifo(parts: Parts) -> Layer:
    stored = parts.stored
    begun = stored.vector if stored is not None and (stored.vector or stored.views) else None
    return Fifo(parts.site, parts.reception, begun)


def _reach(parts: Parts) -> Layer:
    views = parts.stored.views if parts.stored is not None else ()
    last = max((record.view.id for record in views), default=NO_VIEW)
    return Reach(parts.site, parts.reception, last)


def _archiver(parts: Parts) -> Layer:
    return Archiver(parts.site, parts.reception, parts.stored or ArchiveState(Vector()))
