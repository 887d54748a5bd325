"""Compare two JSON documents field by field: keys, types and values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .management_differences import MISSING, VARIABLE, Divergence

_VARIABLE = re.compile("|".join(f"(?:{pattern})" for pattern in VARIABLE))
_SUFFICIENT = (("name", "vhost", "component"), ("description",))
_IDENTITY = (
    "vhost",
    "source",
    "destination",
    "destination_type",
    "routing_key",
    "user",
    "exchange",
    "consumer_tag",
    "protocol",
    "payload",
)


def rename(body: Any, names: Mapping[str, str]) -> Any:
    """Replace the names that differ between the brokers, anywhere in a document."""
    text = json.dumps(body)
    for name, replacement in names.items():
        text = text.replace(json.dumps(name)[1:-1], replacement)
    return json.loads(text)


def compare(ours: Any, theirs: Any, path: str) -> Iterator[Divergence]:
    """Find the fields that differ; in lists of objects, those of the same name are compared."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from _compare_entries(ours, theirs, key, f"{path}.{key}")
    elif _is_list_of_objects(ours) and _is_list_of_objects(theirs):
        ours_by_name, theirs_by_name = _by_identity(ours), _by_identity(theirs)
        orders = list(ours_by_name), list(theirs_by_name)
        if orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]):
            yield _divergence(f"{path}[] order", *orders)
        for key in sorted(ours_by_name.keys() | theirs_by_name.keys()):
            yield from _compare_entries(ours_by_name, theirs_by_name, key, f"{path}[{key}]")
    elif _is_list_of_texts(ours) and _is_list_of_texts(theirs) and sorted(ours) == sorted(theirs):
        return
    elif _VARIABLE.search(path):
        if _kind_of(ours) != _kind_of(theirs):
            yield _divergence(path, ours, theirs)
    elif ours != theirs or _kind_of(ours) != _kind_of(theirs):
        yield _divergence(path, ours, theirs)


def _compare_entries(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], key: str, path: str
) -> Iterator[Divergence]:
    if key in ours and key in theirs:
        yield from compare(ours[key], theirs[key], path)
    elif key in theirs:
        yield Divergence(path, json.dumps(theirs[key]), MISSING)
    else:
        yield Divergence(path, MISSING, json.dumps(ours[key]))


def _divergence(path: str, ours: Any, theirs: Any) -> Divergence:
    return Divergence(path, json.dumps(theirs), json.dumps(ours))


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _by_identity(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Name each item by its identifying fields; equal items, such as messages, are numbered."""
    named: dict[str, Any] = {}
    for item in items:
        keys = next((each for each in _SUFFICIENT if each[0] in item), _IDENTITY)
        name = " ".join(str(item[key]) for key in keys if key in item)
        while name in named:
            name += "'"
        named[name] = item
    return named


def _kind_of(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__
