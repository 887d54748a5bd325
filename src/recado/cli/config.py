"""`recado config show`: the effective settings and the origin of each.

Passwords, their hashes and the credentials in URLs are never printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from recado.cli.flags import build_parser, load_config_from_flags
from recado.node.config import Config, hide_credentials

SECRET_KEYS = ("password", "password_hash", "cookie", "client_secret")


def show_config(options: Sequence[str]) -> int:
    parser = build_parser("config show", "Print the effective settings and the origin of each.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(options)
    rows = list(list_settings(load_config_from_flags(args)))
    if args.json:
        table = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        print(msgspec.json.format(msgspec.json.encode(table), indent=2).decode())
        return 0
    texts = [(key, msgspec.json.encode(value).decode(), origin) for key, value, origin in rows]
    width = max(len(key) for key, _, _ in texts)
    for key, value, origin in texts:
        print(f"{key:{width}}  {value:30}  {origin}")
    return 0


def list_settings(config: Config) -> Iterator[tuple[str, object, str]]:
    """Return key, value and origin of every setting, with one row per field of a user."""
    for section, keys in msgspec.to_builtins(config.settings).items():
        for name, value in keys.items():
            key = f"{section}.{name}"
            if key != "access.users":
                hidden = name in SECRET_KEYS and value
                yield key, "(hidden)" if hidden else hide_credentials(value), config.origin(key)
    users = msgspec.to_builtins(config.settings.access.effective_users())
    for name, user in users.items():
        for key, value in user.items():
            if key not in SECRET_KEYS:
                yield f"access.users.{name}.{key}", value, config.origin("access.users")
            elif value is not None:
                yield f"access.users.{name}.{key}", "(hidden)", config.origin("access.users")
