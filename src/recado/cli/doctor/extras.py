"""Extras: whether the packages are installed that the configuration needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from recado.node.settings import Settings

from .diagnosis import Finding, Severity

CHECK: Final = "packages"


class Extra(NamedTuple):
    """An extra of the package, its modules, and the setting that needs it."""

    name: str
    modules: tuple[str, ...]
    setting: str
    is_needed: Callable[[Settings], bool]


EXTRAS: Final = (
    Extra(
        "console", ("aiohttp",), "management.port", lambda each: each.management.port is not None
    ),
    Extra("feeds", ("pyarrow", "numpy"), "feeds.archives", lambda each: bool(each.feeds.archives)),
    Extra(
        "oauth",
        ("jwt", "cryptography"),
        "oauth.resource_server_id",
        lambda each: each.oauth.resource_server_id is not None,
    ),
    Extra("fast", ("uvloop",), "node.loop", lambda each: each.node.loop == "uvloop"),
    Extra(
        "actors",
        ("google.protobuf", "zstandard"),
        "actors.transport",
        lambda each: each.actors.transport != "none",
    ),
)


def inspect_extras(settings: Settings) -> Iterator[Finding]:
    return check_extras(settings, is_installed)


def check_extras(settings: Settings, has_module: Callable[[str], bool]) -> Iterator[Finding]:
    needed = [extra for extra in EXTRAS if extra.is_needed(settings)]
    complete = True
    for extra in needed:
        missing = [module for module in extra.modules if not has_module(module)]
        if missing:
            complete = False
            found = (
                f"{extra.setting} needs the extra '{extra.name}': {', '.join(missing)} is missing"
            )
            reason = "the broker does not start with this setting"
            fixes = (f"pip install 'recado[{extra.name}]'",)
            yield Finding(CHECK, Severity.ERROR, found, reason, fixes)
    if complete:
        names = ", ".join(extra.name for extra in needed)
        found = f"installed: {names}" if names else "the configuration needs no extras"
        yield Finding(CHECK, Severity.OK, found)


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
