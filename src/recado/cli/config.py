"""`recado config show`: the effective settings, and where each of them came from.

Passwords and their hashes are never printed, only that there is one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from recado.node.config import Config, load

HIDDEN = ("password", "password_hash")


def effective(chosen: argparse.Namespace) -> Config:
    """The configuration that a command with these arguments runs under."""
    flags = {key: value for key, value in vars(chosen).items() if "." in key}
    return load(file=chosen.config, folder=Path.cwd(), environment=os.environ, flags=flags)


def show(chosen: argparse.Namespace) -> int:
    config = effective(chosen)
    rows = list(rows_of(config))
    if chosen.json:
        table = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        print(msgspec.json.format(msgspec.json.encode(table), indent=2).decode())
        return 0
    texts = [(key, msgspec.json.encode(value).decode(), origin) for key, value, origin in rows]
    wide_key, wide_value = (max(len(row[column]) for row in texts) for column in (0, 1))
    for key, value, origin in texts:
        print(f"{key:{wide_key}}  {value:{min(wide_value, 30)}}  {origin}")
    return 0


def rows_of(config: Config) -> Iterator[tuple[str, object, str]]:
    """Key, value and origin of every setting; a row for each user instead of one for all."""
    for section, keys in msgspec.to_builtins(config.settings).items():
        for name, value in keys.items():
            key = f"{section}.{name}"
            if key != "access.users":
                yield key, value, config.origin(key)
    users = msgspec.to_builtins(config.settings.access.known_users())
    for name, user in users.items():
        for key in HIDDEN:
            if user.pop(key) is not None:
                user[key] = "(hidden)"
        yield f"access.users.{name}", user, config.origin("access.users")
