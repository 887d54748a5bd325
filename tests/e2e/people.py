"""Who may do what in the brokers of these tests: two vhosts, guest, and a user with few rights.

Written once, and told to recado as its recado.toml and to RabbitMQ as its definitions.
"""

from __future__ import annotations

import json
from typing import Any

from . import permission_cases

OTHER = "other"
VHOSTS = ("/", OTHER)
LIMITED = "limited"
SECRET = "s3cret"

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}

# Patterns are searched for, not matched: `open` allows every name with "open" in it.
FEW = {
    "configure": "^mine-",
    "write": r"^(mine-.*|amq\.default|amq\.topic)$",
    "read": "^mine-|open",
}

USERS = {
    "guest": {"password": "guest", "permissions": dict.fromkeys(VHOSTS, EVERYTHING)},
    LIMITED: {"password": SECRET, "permissions": {OTHER: FEW}},
}


def as_toml() -> str:
    """The configuration of recado."""
    lines = ["[access]", f"vhosts = {json.dumps(VHOSTS)}"]
    for name, user in USERS.items():
        lines += [f"[access.users.{name}]", f"password = {json.dumps(user['password'])}"]
        for vhost, rights in permissions(name).items():
            lines.append(f"[access.users.{name}.permissions.{json.dumps(vhost)}]")
            lines += [f"{right} = {json.dumps(pattern)}" for right, pattern in rights.items()]
    return "\n".join(lines) + "\n"


def as_definitions() -> str:
    """The definitions that RabbitMQ loads at its start."""
    definitions: dict[str, list[dict[str, Any]]] = {
        "vhosts": [{"name": vhost} for vhost in VHOSTS],
        "users": [
            {"name": name, "password": user["password"], "tags": ""} for name, user in USERS.items()
        ],
        "permissions": [
            {"user": name, "vhost": vhost, **rights}
            for name in USERS
            for vhost, rights in permissions(name).items()
        ],
    }
    for kind, entries in permission_cases.DEFINITIONS.items():
        definitions[kind] = [*definitions.get(kind, []), *entries]
    return json.dumps(definitions)


def permissions(name: str) -> dict[str, dict[str, str]]:
    """The rights of a user by vhost."""
    given = USERS[name]["permissions"]
    assert isinstance(given, dict)
    return given
