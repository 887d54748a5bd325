"""Content Filter: keep or drop fields of a body.

A path names a field: `customer.address.city`, or `("customer", "e.mail")` for names with dots. In lists it names
the field of each item. Objects become dicts on the way to a field, by the names that they have when encoded.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from ..errors import CompositionError
from ..message import Message
from ..step import FlowStep, Outputs
from ..translation.object_model import to_binary_form

FieldPath: TypeAlias = str | tuple[str, ...]

_Tree: TypeAlias = dict[str, "_Tree | None"]  # None: the whole field

_SCALARS: Final = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
_ABSENT: Final = object()


class ContentFilter(FlowStep):
    """Keep only the fields with these paths, or drop them.

        ContentFilter(keep=["id", "customer.name"])
        ContentFilter(drop=["customer.card", "items.cost"])

    Where a path does not fit, because a value is neither an object nor a list, `keep` leaves the value out and
    `drop` leaves it as it is.
    """

    def __init__(
        self, *, keep: Iterable[FieldPath] | None = None, drop: Iterable[FieldPath] | None = None
    ) -> None:
        if (keep is None) == (drop is None):
            raise CompositionError("a content filter has either keep or drop")
        self._keep = None if keep is None else _to_tree(keep)
        self._drop = None if drop is None else _to_tree(drop)

    def process(self, message: Message[Any]) -> Outputs:
        if self._keep is not None:
            kept = _keep(message.body, self._keep)
            return (message.with_body({} if kept is _ABSENT else kept),)
        return (message.with_body(_drop(message.body, self._drop or {})),)


def _to_tree(paths: Iterable[FieldPath]) -> _Tree:
    tree: _Tree = {}
    if isinstance(paths, str):
        raise CompositionError(f"paths are a list, not the string {paths!r}")
    for path in paths:
        names = path.split(".") if isinstance(path, str) else path
        if not names or not all(names):
            raise CompositionError(f"the path {path!r} has an empty name")
        *outer, last = names
        node: _Tree | None = tree
        for name in outer:
            node = None if node is None else node.setdefault(name, {})
        if node is not None:  # otherwise a shorter path already covers it
            node[last] = None
    return tree


def _to_fields(value: Any) -> Any:
    """Return an object as a dict of its fields; other values as they are."""
    if (
        isinstance(value, (dict, list, tuple, set, frozenset, str, int, float, *_SCALARS))
        or value is None
    ):
        return value
    return msgspec.to_builtins(value, builtin_types=_SCALARS, enc_hook=to_binary_form)


def _keep(value: Any, tree: _Tree) -> Any:
    value = _to_fields(value)
    if isinstance(value, Mapping):
        kept = {
            name: part if (rest := tree[name]) is None else _keep(part, rest)
            for name, part in value.items()
            if name in tree
        }
        return {name: part for name, part in kept.items() if part is not _ABSENT}
    if isinstance(value, (list, tuple)):
        return [part for each in value if (part := _keep(each, tree)) is not _ABSENT]
    return _ABSENT


def _drop(value: Any, tree: _Tree) -> Any:
    value = _to_fields(value)
    if isinstance(value, Mapping):
        return {
            name: part if (rest := tree.get(name)) is None else _drop(part, rest)
            for name, part in value.items()
            if tree.get(name, _ABSENT) is not None
        }
    if isinstance(value, (list, tuple)):
        return [_drop(each, tree) for each in value]
    return value
