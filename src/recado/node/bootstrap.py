"""The initial state of a broker: its users and definitions before the first client connects.

Three sources may define the same user: earlier imports in the data folder, the file of `node.definitions`, and
the configuration. Later ones override earlier ones. If none of them defines any user, the user guest is
created; so there is no guest at a start if other users were imported.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from msgspec.structs import replace

from recado.broker.access import User
from recado.broker.broker import Broker
from recado.node.config import ConfigError
from recado.node.settings import AccessSettings, Settings, UserSettings
from recado.server.passwords import hash_password

log = logging.getLogger("recado.node")


def populate(broker: Broker, settings: Settings, now: int) -> None:
    """Apply definitions file and configured users to a broker, after its data folder was recovered."""
    access, file = settings.access, settings.node.definitions
    if broker.staged_imports:
        from recado.definitions.importer import resume_import

        resume_import(broker, now, access.loopback_users)
    _apply_loopback_users(broker, access.loopback_users)
    if file is not None:
        _import_file(broker, file, access.loopback_users, now)
    if access.users or not broker.users:
        for user in build_users(access):
            known = broker.users.get(user.name)
            # Limits of users cannot be configured, so imported ones stay.
            broker.add_user(user if known is None else replace(user, limits=known.limits))


def build_users(access: AccessSettings) -> list[User]:
    """Return the configured users. Plain passwords are hashed, so that none stays in memory."""
    return [
        User(
            name=name,
            password_hash=_hash_password(user),
            tags=user.tags,
            permissions=user.permissions,
            topic_permissions={
                (vhost, exchange): permission
                for vhost, exchanges in user.topic_permissions.items()
                for exchange, permission in exchanges.items()
            },
            loopback_only=name in access.loopback_users,
        )
        for name, user in access.effective_users().items()
    ]


def _hash_password(user: UserSettings) -> str:
    """Return the hash of a user's password; without a password an empty one, which matches none."""
    if user.password_hash is not None:
        return user.password_hash
    return "" if user.password is None else hash_password(user.password)


def _apply_loopback_users(broker: Broker, loopback_users: Collection[str]) -> None:
    """Apply the configured `loopback_users` to recovered users, for which it may have changed."""
    for user in list(broker.users.values()):
        broker.add_user(replace(user, loopback_only=user.name in loopback_users))


def _import_file(broker: Broker, file: str, loopback_users: Collection[str], now: int) -> None:
    from pathlib import Path

    from recado.definitions.document import DefinitionsError, parse_json
    from recado.definitions.importer import import_definitions

    try:
        document = parse_json(Path(file).read_bytes())
        notes = import_definitions(broker, document, now, loopback_users=loopback_users)
    except OSError as error:
        raise ConfigError(f"node.definitions {file!r}: {error.strerror}") from error
    except DefinitionsError as error:
        raise ConfigError(f"node.definitions {file!r}: {error}") from error
    for note in notes:
        log.warning("definitions skipped: %s (file=%s)", note, file)
