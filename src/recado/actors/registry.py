"""The registry: the living actors of a system, by uid, name and class.

RG1  A name belongs to one living actor. It is free as soon as that actor has stopped, or could not be started.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from .actor import Actor
from .errors import NameTakenError

if TYPE_CHECKING:
    from .address import Address
    from .ref import ActorRef
    from .runtime.cell import Cell

M = TypeVar("M")


class Registry:
    def __init__(self) -> None:
        self._by_uid: dict[int, Cell] = {}
        self._by_name: dict[str, Cell] = {}

    def by_id(self, uid: int) -> ActorRef[Any] | None:
        """Return the actor with a uid."""
        cell = self._by_uid.get(uid)
        return cell.ref if cell is not None else None

    def by_name(self, name: str) -> ActorRef[Any] | None:
        """Return the actor with a name."""
        cell = self._by_name.get(name)
        return cell.ref if cell is not None else None

    def by_class(self, actor_class: type[Actor[M]]) -> list[ActorRef[M]]:
        """Return the actors of a class and of its subclasses."""
        return [cell.ref for cell in self._by_uid.values() if isinstance(cell.actor, actor_class)]

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[ActorRef[Any]]:
        return iter([cell.ref for cell in self._by_uid.values()])

    # --- used by the system ---------------------------------------------------------------------------

    def check_name_free(self, name: str) -> None:
        """Raise NameTakenError if a living actor has the name."""
        if name in self._by_name:
            raise NameTakenError(f"there is an actor {name!r}: {self._by_name[name].ref}")

    def add(self, cell: Cell) -> None:
        address = cell.ref.address
        if address.name:
            self._by_name[address.name] = cell
        self._by_uid[address.uid] = cell

    def remove(self, cell: Cell) -> None:
        address = cell.ref.address
        if self._by_uid.pop(address.uid, None) is not None and address.name:
            del self._by_name[address.name]

    def find_cell(self, address: Address) -> Cell | None:
        """Return the cell with the uid of an address; with its name if the address has no uid (AD2)."""
        if address.uid:
            return self._by_uid.get(address.uid)
        return self._by_name.get(address.name)

    def find_durable_cell(self, name: str) -> Cell | None:
        """Return the cell with a name if it has a durable mailbox.

        Messages that are addressed to an earlier actor of that name, by its uid, go to this mailbox: it also
        holds the messages that the earlier actor did not handle. The earlier actor may have been in an earlier
        incarnation of the node.
        """
        cell = self._by_name.get(name)
        return cell if cell is not None and cell.durable_mailbox is not None else None

    def cells(self) -> list[Cell]:
        return list(self._by_uid.values())
