"""Locations, as options name them: a path of this machine, or a URI with a scheme.

A location with a scheme other than `file` never becomes a folder of this machine. Relative paths are resolved
once, when a pipeline is defined: Python, Spark's Java and its tasks have different working directories, and
`os.chdir` changes only the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .options import OptionError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL: Final = ("", "file")
OBJECT_STORES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
"""Schemes that both deltalake and pyiceberg have a store for."""
_PATH_OPTIONS: Final = ("path", "spool", "config", "warehouse", "staging")
_SQLITE: Final = "sqlite:///"
_HERE: Final = Path()


def scheme_of(location: str) -> str:
    """The scheme in lower case; empty for a path."""
    found = _SCHEME.match(location)
    return found[1].lower() if found else ""


def is_local(location: str) -> bool:
    return scheme_of(location) in _LOCAL


def is_object_store(location: str) -> bool:
    return scheme_of(location) in OBJECT_STORES


def has_bucket(location: str) -> bool:
    """Whether a location with a scheme is complete: `s3:/x` and `s3:///x` name no bucket."""
    return re.match(r"[^:/]+://[^/]", location) is not None


def folder_of(location: str) -> Path:
    """The absolute path of a local folder. Raises OptionError for a location that is empty or not local."""
    if not location:
        raise OptionError("a path is empty: name a folder; the working directory is .")
    if not is_local(location):
        raise OptionError(
            f"{location} is not a folder of this machine, which is needed here: name one, on a cluster one "
            f"that all machines mount; a folder with such a name is ./{location}"
        )
    path = location
    if scheme_of(location):
        path = location[len("file:") :]
        if path.startswith("//") and not path.startswith("///"):
            raise OptionError(f"{location} names a host: write file:///PATH")
    return Path(path).absolute()


def local_uri(path: Path) -> str:
    """For Spark and pyiceberg, which take names literally: `as_uri` would write `%20` for a space."""
    return f"file://{path}"


def resolve(location: str, folder: Path = _HERE) -> str:
    """A location that no longer depends on the working directory; a relative path is one from `folder` on."""
    scheme = scheme_of(location)
    if not location or scheme not in _LOCAL:
        return location
    path = location[len(f"{scheme}:") :] if scheme else location
    if path.startswith("/"):
        return location
    path = str((folder / path).absolute())
    return local_uri(Path(path)) if scheme else path


def resolve_options(options: Mapping[str, str], folder: Path = _HERE) -> dict[str, str]:
    """Options with all of their locations resolved; names of options have no case."""
    return {name: _resolve_option(name.lower(), value, folder) for name, value in options.items()}


def _resolve_option(name: str, value: str, folder: Path) -> str:
    if name in _PATH_OPTIONS:
        return resolve(value, folder)
    if name == "catalogue" and value.startswith(_SQLITE):
        path = value.removeprefix(_SQLITE)
        return (
            value
            if not path or path.startswith(("/", ":"))
            else f"{_SQLITE}{resolve(path, folder)}"
        )
    return value
