"""Users, permissions, topic permissions and limits of users.

Changes apply to open connections at once, and are durable before they are answered.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from recado.broker.access import Permission, TopicPermission, User
from recado.broker.limits import UserLimits
from recado.broker.pattern import compile_name_pattern
from recado.server.passwords import find_hash_algorithm, hash_password, is_password_hash

from ..access import Access, is_administrator
from ..body import Texts, read_body
from ..query import Listing
from ..request import (
    CREATED,
    NO_CONTENT,
    Answer,
    ApiRequest,
    bad_request,
    check_name,
    not_found,
)
from ..routes import API, Content
from .vhosts import LimitBody

HASHING_ALGORITHM_PREFIX = "rabbit_password_hashing_"


class UserBody(msgspec.Struct):
    """A user's tags, and its password or the hash of it; without both, the user cannot log in by password."""

    tags: Texts
    password: str | None = None
    password_hash: str = ""


class UserNames(msgspec.Struct):
    """The users to delete."""

    users: list[str]


class PermissionBody(msgspec.Struct):
    """Patterns of the names that a user may configure, write to and read from."""

    configure: str
    write: str
    read: str


class TopicPermissionBody(msgspec.Struct):
    """Patterns of the routing keys that a user may publish and bind with, on one topic exchange."""

    exchange: str
    write: str
    read: str


def user_object(user: User) -> dict[str, Any]:
    """Return a user as RabbitMQ describes it."""
    algorithm = find_hash_algorithm(user.password_hash) or "sha256"
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": f"{HASHING_ALGORITHM_PREFIX}{algorithm}",
        "tags": list(user.tags),
        "limits": msgspec.to_builtins(user.limits),
    }


def _users(users: list[User]) -> Answer:
    return Answer(
        listing=Listing(
            users,
            user_object,
            name_of=_name_of_user,
            sort_values={"name": _name_of_user},
            order=lambda user: (user.name,),
        )
    )


def _name_of_user(user: User) -> str:
    return user.name


def _require_user(request: ApiRequest) -> User:
    """Return the user in the path of a request. Raises `ApiError` 404 if there is none."""
    user = request.broker.users.get(request.parameters["user"])
    if user is None:
        raise not_found()
    return user


@API.add("GET", "/api/whoami", Access.MANAGEMENT)
def whoami(request: ApiRequest) -> Answer:
    """Return the user of this request and its tags."""
    return Answer(body={"name": request.user.name, "tags": list(request.user.tags)})


@API.add("GET", "/api/users", Access.ADMINISTRATOR, content=Content.LIST)
def list_users(request: ApiRequest) -> Answer:
    """List all users."""
    return _users(list(request.broker.users.values()))


@API.add("GET", "/api/users/without-permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_users_without_permissions(request: ApiRequest) -> Answer:
    """List the users that have no permissions in any vhost."""
    return _users([user for user in request.broker.users.values() if not user.permissions])


@API.add("GET", "/api/users/{user}", Access.ADMINISTRATOR)
def get_user(request: ApiRequest) -> Answer:
    """Return one user."""
    return Answer(body=user_object(_require_user(request)))


@API.add("PUT", "/api/users/{user}", Access.ADMINISTRATOR, body=UserBody)
def put_user(request: ApiRequest) -> Answer:
    """Create a user, or replace its password and tags; permissions and limits stay.

    Without `password` and `password_hash`, no password is valid for the user.
    """
    name, body = request.parameters["user"], read_body(request, UserBody)
    known = request.broker.users.get(name)
    user = known or User(name, loopback_only=name in request.console.loopback_users)
    request.set_user(replace(user, password_hash=_read_password(body), tags=_read_tags(body)))
    return CREATED if known is None else NO_CONTENT


def _read_password(body: UserBody) -> str:
    if body.password is not None:
        return hash_password(body.password)
    if body.password_hash and not is_password_hash(body.password_hash):
        raise bad_request(
            f"password_hash: not a salted SHA-256, SHA-512 or argon2 hash: {body.password_hash!r}"
        )
    return body.password_hash


def _read_tags(body: UserBody) -> tuple[str, ...]:
    tags = body.tags
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(",")]
    return tuple(tag for tag in tags if tag)


@API.add("DELETE", "/api/users/{user}", Access.ADMINISTRATOR)
def delete_user(request: ApiRequest) -> Answer:
    """Delete a user and close its connections."""
    _delete_users(request, [_require_user(request).name])
    return NO_CONTENT


@API.add("POST", "/api/users/bulk-delete", Access.ADMINISTRATOR, answers=(204,), body=UserNames)
def delete_many_users(request: ApiRequest) -> Answer:
    """Delete several users; names that do not exist are ignored."""
    names = read_body(request, UserNames).users
    _delete_users(request, [name for name in dict.fromkeys(names) if name in request.broker.users])
    return NO_CONTENT


def _delete_users(request: ApiRequest, names: list[str]) -> None:
    for name in names:
        request.broker.delete_user(name)
        request.console.close_connections(f"user '{name}' is deleted", user=name)


# ── permissions ─────────────────────────────────────────────────────────────────────────────────────


def _permission_object(entry: tuple[str, str, Permission]) -> dict[str, Any]:
    user, vhost, permission = entry
    return {"user": user, "vhost": vhost, **msgspec.to_builtins(permission)}


def _permissions(entries: list[tuple[str, str, Permission]]) -> Answer:
    return Answer(
        listing=Listing(
            entries,
            _permission_object,
            name_of=lambda entry: entry[0],
            order=lambda entry: (entry[1], entry[0]),
        )
    )


@API.add("GET", "/api/permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_permissions(request: ApiRequest) -> Answer:
    """List the permissions of all users."""
    return _permissions(
        [
            (user.name, vhost, permission)
            for user in request.broker.users.values()
            for vhost, permission in user.permissions.items()
        ]
    )


@API.add("GET", "/api/users/{user}/permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_permissions_of_user(request: ApiRequest) -> Answer:
    """List the permissions of one user."""
    user = _require_user(request)
    return _permissions([(user.name, vhost, each) for vhost, each in user.permissions.items()])


@API.add("GET", "/api/vhosts/{vhost}/permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_permissions_of_vhost(request: ApiRequest) -> Answer:
    """List the permissions of all users in one vhost."""
    vhost = request.vhost().name
    return _permissions(
        [
            (user.name, vhost, user.permissions[vhost])
            for user in request.broker.users.values()
            if vhost in user.permissions
        ]
    )


@API.add("GET", "/api/permissions/{vhost}/{user}", Access.ADMINISTRATOR)
def get_permission(request: ApiRequest) -> Answer:
    """Return the permission of a user in a vhost."""
    user, vhost = _require_user(request), request.vhost().name
    if vhost not in user.permissions:
        raise not_found()
    return Answer(body=_permission_object((user.name, vhost, user.permissions[vhost])))


@API.add("PUT", "/api/permissions/{vhost}/{user}", Access.ADMINISTRATOR, body=PermissionBody)
def put_permission(request: ApiRequest) -> Answer:
    """Set the permission of a user in a vhost."""
    body = read_body(request, PermissionBody)
    user, vhost = _user_and_vhost(request)
    for name in PermissionBody.__struct_fields__:
        _check_pattern(name, getattr(body, name))
    permission = Permission(body.configure, body.write, body.read)
    created = vhost not in user.permissions
    request.set_user(replace(user, permissions={**user.permissions, vhost: permission}))
    return CREATED if created else NO_CONTENT


def _check_pattern(name: str, pattern: str) -> None:
    try:
        compile_name_pattern(pattern)
    except ValueError as error:
        raise bad_request(f"{name}: invalid regular expression: {error}") from error


def _user_and_vhost(request: ApiRequest) -> tuple[User, str]:
    user = request.broker.users.get(request.parameters["user"])
    vhost = request.parameters["vhost"]
    if user is None or vhost not in request.broker.vhosts:
        raise bad_request("vhost_or_user_not_found")
    return user, vhost


@API.add("DELETE", "/api/permissions/{vhost}/{user}", Access.ADMINISTRATOR)
def delete_permission(request: ApiRequest) -> Answer:
    """Delete the permission of a user in a vhost."""
    user, vhost = _require_user(request), request.vhost().name
    if vhost not in user.permissions:
        raise not_found()
    left = {name: each for name, each in user.permissions.items() if name != vhost}
    request.set_user(replace(user, permissions=left))
    return NO_CONTENT


# ── topic permissions ───────────────────────────────────────────────────────────────────────────────


def _topic_permission_object(entry: tuple[str, str, str, TopicPermission]) -> dict[str, Any]:
    user, vhost, exchange, permission = entry
    return {
        "user": user,
        "vhost": vhost,
        "exchange": exchange,
        "write": permission.write,
        "read": permission.read,
    }


def _topic_permissions(users: list[User], vhost: str | None = None) -> Answer:
    entries = [
        (user.name, name, exchange, permission)
        for user in users
        for (name, exchange), permission in user.topic_permissions.items()
        if vhost is None or name == vhost
    ]
    return Answer(
        listing=Listing(
            entries,
            _topic_permission_object,
            name_of=lambda entry: entry[0],
            order=lambda entry: (entry[1], entry[0], entry[2]),
        )
    )


@API.add("GET", "/api/topic-permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_topic_permissions(request: ApiRequest) -> Answer:
    """List the topic permissions of all users."""
    return _topic_permissions(list(request.broker.users.values()))


@API.add("GET", "/api/users/{user}/topic-permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_topic_permissions_of_user(request: ApiRequest) -> Answer:
    """List the topic permissions of one user."""
    return _topic_permissions([_require_user(request)])


@API.add("GET", "/api/vhosts/{vhost}/topic-permissions", Access.ADMINISTRATOR, content=Content.LIST)
def list_topic_permissions_of_vhost(request: ApiRequest) -> Answer:
    """List the topic permissions of all users in one vhost."""
    return _topic_permissions(list(request.broker.users.values()), request.vhost().name)


@API.add("GET", "/api/topic-permissions/{vhost}/{user}", Access.ADMINISTRATOR, content=Content.LIST)
@API.add(
    "GET",
    "/api/topic-permissions/{vhost}/{user}/{exchange}",
    Access.ADMINISTRATOR,
    content=Content.LIST,
)
def list_topic_permissions_in_vhost(request: ApiRequest) -> Answer:
    """List the topic permissions of a user in a vhost; an exchange in the path does not matter."""
    user, vhost = _require_user(request), request.vhost().name
    if not any(name == vhost for name, _ in user.topic_permissions):
        raise not_found()
    return _topic_permissions([user], vhost)


@API.add(
    "PUT", "/api/topic-permissions/{vhost}/{user}", Access.ADMINISTRATOR, body=TopicPermissionBody
)
@API.add(
    "PUT",
    "/api/topic-permissions/{vhost}/{user}/{exchange}",
    Access.ADMINISTRATOR,
    body=TopicPermissionBody,
)
def put_topic_permission(request: ApiRequest) -> Answer:
    """Narrow what a user may write to and read from one topic exchange, by routing key.

    The exchange is that of the body.
    """
    body = read_body(request, TopicPermissionBody)
    user, vhost = _user_and_vhost(request)
    exchange = check_name("exchange", body.exchange)
    _check_pattern("write", body.write)
    _check_pattern("read", body.read)
    permission = TopicPermission(write=body.write, read=body.read)
    created = (vhost, exchange) not in user.topic_permissions
    changed = {**user.topic_permissions, (vhost, exchange): permission}
    request.set_user(replace(user, topic_permissions=changed))
    return CREATED if created else NO_CONTENT


@API.add("DELETE", "/api/topic-permissions/{vhost}/{user}", Access.ADMINISTRATOR)
def delete_topic_permissions(request: ApiRequest) -> Answer:
    """Delete all topic permissions of a user in a vhost."""
    user, vhost = _require_user(request), request.vhost().name
    left = {key: each for key, each in user.topic_permissions.items() if key[0] != vhost}
    if len(left) == len(user.topic_permissions):
        raise not_found()
    request.set_user(replace(user, topic_permissions=left))
    return NO_CONTENT


@API.add("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", Access.ADMINISTRATOR)
def delete_topic_permission(request: ApiRequest) -> Answer:
    """Delete the topic permission of a user for one exchange."""
    user, key = _require_user(request), (request.vhost().name, request.parameters["exchange"])
    if key not in user.topic_permissions:
        raise not_found()
    left = {other: each for other, each in user.topic_permissions.items() if other != key}
    request.set_user(replace(user, topic_permissions=left))
    return NO_CONTENT


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────


def _limits(users: list[User]) -> Answer:
    entries = [user for user in users if msgspec.to_builtins(user.limits)]
    return Answer(
        listing=Listing(
            entries,
            lambda user: {"user": user.name, "value": msgspec.to_builtins(user.limits)},
            name_of=_name_of_user,
            order=lambda user: (user.name,),
        )
    )


@API.add("GET", "/api/user-limits", Access.MANAGEMENT, content=Content.LIST)
def list_user_limits(request: ApiRequest) -> Answer:
    """List the limits of all users; a user who is no administrator sees its own."""
    users = list(request.broker.users.values())
    if not is_administrator(request.user):
        users = [user for user in users if user.name == request.user.name]
    return _limits(users)


@API.add("GET", "/api/user-limits/{user}", Access.MANAGEMENT, content=Content.LIST)
def list_limits_of_user(request: ApiRequest) -> Answer:
    """List the limits of one user."""
    if not is_administrator(request.user) and request.parameters["user"] != request.user.name:
        return _limits([])
    return _limits([_require_user(request)])


@API.add(
    "PUT", "/api/user-limits/{user}/{name}", Access.ADMINISTRATOR, answers=(204,), body=LimitBody
)
def put_user_limit(request: ApiRequest) -> Answer:
    """Set a limit of a user, `max-connections` or `max-channels`; a negative value means no limit."""
    user, body = _require_user(request), read_body(request, LimitBody)
    request.set_user(
        replace(user, limits=_with_limit(user.limits, request.parameters["name"], body.value))
    )
    return NO_CONTENT


@API.add("DELETE", "/api/user-limits/{user}/{name}", Access.ADMINISTRATOR)
def delete_user_limit(request: ApiRequest) -> Answer:
    """Remove a limit of a user."""
    user = _require_user(request)
    request.set_user(replace(user, limits=_with_limit(user.limits, request.parameters["name"], -1)))
    return NO_CONTENT


def _with_limit(limits: UserLimits, name: str, value: int) -> UserLimits:
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(limits)}
    if name not in fields:
        raise bad_request(f"unknown limit '{name}': there are {', '.join(fields)}")
    return replace(limits, **{fields[name]: None if value < 0 else value})
