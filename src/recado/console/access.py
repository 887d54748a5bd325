"""Which HTTP requests a user may make: the tags of RabbitMQ, and the vhosts that a user may enter.

| tag | may |
|---|---|
| management | use the API for the vhosts in which the user has permissions, and see its own connections |
| policymaker | also manage policies and parameters of those vhosts |
| monitoring | also see the names of all vhosts, all connections, channels and consumers, and the nodes |
| administrator | everything |

As in RabbitMQ, a wrong password, a missing tag and a vhost that the user may not enter are all answered with
401. A vhost that does not exist is answered with 404.
"""

from __future__ import annotations

from enum import Enum, auto

from recado.broker.access import User
from recado.broker.broker import Broker

MANAGEMENT_TAGS = frozenset({"administrator", "monitoring", "policymaker", "management"})


class Access(Enum):
    """What a route requires of the user."""

    PUBLIC = auto()  # no login
    MANAGEMENT = auto()  # any of `MANAGEMENT_TAGS`
    VHOST = auto()  # permissions in the vhost of the path, or administrator
    VISIBLE_VHOST = auto()  # as VHOST, or monitoring
    MONITORING = auto()
    POLICIES = auto()  # policymaker with permissions in the vhost of the path, or administrator
    GLOBAL_PARAMETERS = auto()  # policymaker, or administrator
    ADMINISTRATOR = auto()


def is_administrator(user: User) -> bool:
    return "administrator" in user.tags


def is_monitor(user: User) -> bool:
    return not {"administrator", "monitoring"}.isdisjoint(user.tags)


def is_policymaker(user: User) -> bool:
    return not {"administrator", "policymaker"}.isdisjoint(user.tags)


def login_vhosts(user: User, broker: Broker) -> list[str]:
    """Return the names of the vhosts in which the user has permissions."""
    return [name for name in broker.vhosts if user.may_enter(name)]


def visible_vhosts(user: User, broker: Broker) -> list[str]:
    """Return the names of the vhosts whose existence the user may know."""
    return list(broker.vhosts) if is_monitor(user) else login_vhosts(user, broker)


def listed_vhosts(user: User, broker: Broker) -> list[str]:
    """Return the names of the vhosts whose queues, exchanges, bindings and policies are in the user's lists.

    For a monitor these are fewer than the visible ones, as in RabbitMQ.
    """
    return list(broker.vhosts) if is_administrator(user) else login_vhosts(user, broker)


def find_refusal(access: Access, user: User, vhost: str | None, broker: Broker) -> str | None:
    """Return why a user may not use a route, None if it may.

    `vhost` is the name in the path, if the path has one. A vhost that does not exist is not refused here:
    the handler answers 404.
    """
    if access is Access.PUBLIC:
        return None
    if MANAGEMENT_TAGS.isdisjoint(user.tags):
        return "Not management user"
    if is_administrator(user) or access is Access.MANAGEMENT:
        return None
    may_enter = vhost is None or vhost not in broker.vhosts or user.may_enter(vhost)
    if access is Access.VHOST:
        return None if may_enter else "User not authorised to access virtual host"
    if access is Access.VISIBLE_VHOST:
        may_see = may_enter or is_monitor(user)
        return None if may_see else "User not authorised to access virtual host"
    if access is Access.MONITORING:
        return None if is_monitor(user) else "Not monitor user"
    if access is Access.POLICIES:
        allowed = is_policymaker(user) and may_enter
        return None if allowed else "User not authorised to access object"
    if access is Access.GLOBAL_PARAMETERS:
        return None if is_policymaker(user) else "User not authorised to access object"
    return "Not administrator user"
