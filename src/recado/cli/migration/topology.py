"""Definitions: copy them from the source to the target, and compare them.

The user whose login the command uses at the target is not copied: its password could otherwise change between two
requests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from recado.cli.management.api import ManagementApi, path_of

from .transfer import EXCHANGE_PREFIX

JsonObject = dict[str, Any]

IDENTITIES: Final = {
    "users": ("name",),
    "vhosts": ("name",),
    "permissions": ("user", "vhost"),
    "topic_permissions": ("user", "vhost", "exchange"),
    "parameters": ("component", "vhost", "name"),
    "global_parameters": ("name",),
    "policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "destination_type", "routing_key", "arguments"),
}
"""The kinds of objects in definitions, and the fields that identify one."""
COMPARED: Final = {
    "users": ("password_hash", "hashing_algorithm", "tags", "limits"),
    "vhosts": (),
    "permissions": ("configure", "write", "read"),
    "topic_permissions": ("write", "read"),
    "parameters": ("value",),
    "global_parameters": ("value",),
    "policies": ("pattern", "definition", "priority", "apply-to"),
    "exchanges": ("type", "durable", "auto_delete", "internal", "arguments"),
    "queues": ("durable", "auto_delete", "arguments"),
    "bindings": (),
}
"""The fields that must be equal on both servers."""
SKIPPED_GLOBAL_PARAMETERS: Final = frozenset({"internal_cluster_id", "cluster_name"})
"""They identify the server, so they are not copied."""


class Difference(NamedTuple):
    """An object of the source that the target does not have, or has differently."""

    kind: str
    identity: dict[str, Any]
    problem: str

    def __str__(self) -> str:
        named = " ".join(f"{key}={value!r}" for key, value in self.identity.items())
        return f"{self.kind}: {named}: {self.problem}"


def read_definitions(source: ManagementApi, vhosts: Iterable[str], target_user: str) -> JsonObject:
    """Return the definitions to copy: those of the chosen vhosts, users, and global parameters."""
    document: JsonObject = source.get(path_of("definitions"))
    chosen = frozenset(vhosts)
    kept: JsonObject = {}
    for kind in IDENTITIES:
        entries = document.get(kind, [])
        if kind == "vhosts":
            entries = [entry for entry in entries if entry["name"] in chosen]
        elif kind == "users":
            entries = [entry for entry in entries if entry["name"] != target_user]
        elif kind == "global_parameters":
            entries = [each for each in entries if each["name"] not in SKIPPED_GLOBAL_PARAMETERS]
        else:
            entries = [entry for entry in entries if entry["vhost"] in chosen]
            entries = [entry for entry in entries if not _is_private(kind, entry)]
        kept[kind] = entries
    for name in ("rabbit_version", "rabbitmq_version"):
        if name in document:
            kept[name] = document[name]
    return kept


def _is_private(kind: str, entry: Mapping[str, Any]) -> bool:
    """Whether an object was left by a migration in the other direction that was killed."""
    field = {"exchanges": "name", "bindings": "source"}.get(kind)
    return field is not None and str(entry[field]).startswith(EXCHANGE_PREFIX)


def count_objects(definitions: Mapping[str, Any]) -> dict[str, int]:
    return {kind: len(definitions.get(kind, ())) for kind in IDENTITIES}


def write_definitions(target: ManagementApi, definitions: JsonObject) -> None:
    """Import definitions into the target, which adds and changes objects but deletes none."""
    target.request("POST", path_of("definitions"), definitions)


def compare(definitions: JsonObject, target: JsonObject) -> list[Difference]:
    """Return the objects of the definitions that the target lacks or has with other fields."""
    differences = []
    for kind, identity in IDENTITIES.items():
        known = {_key(entry, identity): entry for entry in target.get(kind, [])}
        for entry in definitions.get(kind, []):
            other = known.get(_key(entry, identity))
            if other is None:
                problem = "missing"
            else:
                problem = ", ".join(
                    f"{name} is {other.get(name)!r} instead of {entry[name]!r}"
                    for name in COMPARED[kind]
                    if name in entry
                    and _normalize(name, entry[name]) != _normalize(name, other.get(name))
                )
            if problem:
                named = {name: entry.get(name) for name in identity}
                differences.append(Difference(kind, named, problem))
    return differences


def _normalize(name: str, value: Any) -> Any:
    """Tags are a text in old exports, and an absent limit or argument table is an empty one."""
    if name == "tags" and isinstance(value, str):
        return [tag for tag in value.split(",") if tag]
    return value or None if isinstance(value, dict | list) else value


def _key(entry: Mapping[str, Any], identity: Iterable[str]) -> Hashable:
    return tuple(_freeze(entry.get(name)) for name in identity)


def _freeze(value: Any) -> Hashable:
    match value:
        case dict():
            return frozenset((name, _freeze(each)) for name, each in value.items())
        case list():
            return tuple(map(_freeze, value))
        case _:
            scalar: Hashable = value
            return scalar
