"""Addresses of actors, as a value and as text.

    recado-actor://exchange/book.A1#2s8m3kq0c1
    └── scheme      └─ node  └─ name  └─ uid, base 36

AD1  Conversion to text loses nothing: `Address.parse(str(address)) == address`.
AD2  A uid is never used twice, also not by the next incarnation of a node: an address with a uid means one
     actor, and no other of the same name. Without a uid (0, not written) it means the actor that has the name.
     A message for an actor that has stopped goes to the durable mailbox of its name, if there is one: see
     Registry.find_durable_cell.
AD3  An actor without a name has only its uid: `recado-actor://exchange/#2s8m3kq0c1`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from msgspec import Struct

SCHEME = "recado-actor://"
BASE36_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
UID_MAX_ID = (1 << 64) - 1


class Address(Struct, frozen=True, gc=False):
    node: str
    name: str = ""
    uid: int = 0

    def __str__(self) -> str:
        uid = f"#{_format_base36(self.uid)}" if self.uid else ""
        return f"{SCHEME}{quote(self.node, safe='')}/{quote(self.name, safe='')}{uid}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that a text denotes. Raises ValueError with the reason."""
        if not text.startswith(SCHEME):
            raise ValueError(f"not the address of an actor, which begins with {SCHEME}: {text!r}")
        node, slash, rest = text.removeprefix(SCHEME).partition("/")
        name, hash_sign, uid = rest.partition("#")
        if not node or not slash or "/" in name or bool(hash_sign) != bool(uid):
            raise ValueError(f"not the address of an actor, {SCHEME}node/name#uid: {text!r}")
        if not name and not uid:
            raise ValueError(f"neither a name nor a uid: {text!r}")
        return cls(unquote(node), unquote(name), _parse_uid(uid, text) if uid else 0)


def _format_base36(number: int) -> str:
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(BASE36_DIGITS[digit])
    return "".join(reversed(digits))


def _parse_uid(uid: str, text: str) -> int:
    # int() also accepts signs, spaces, underscores and capitals: several texts for one address (AD1).
    if uid.strip(BASE36_DIGITS) or uid[0] == "0" or (number := int(uid, 36)) > UID_MAX_ID:
        raise ValueError(f"not a uid: {uid!r} in {text!r}")
    return number
