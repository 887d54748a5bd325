"""Locations in options: a local path, or a URI with a scheme.

A location with a scheme other than `file` never becomes a local folder. Relative paths are resolved once,
when a pipeline is defined: Python, Spark's Java process and its tasks have different working directories, and
`os.chdir` changes only the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .options import OptionError

_SCHEME_PATTERN: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL_SCHEMES: Final = ("", "file")
OBJECT_STORE_SCHEMES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
"""Schemes that both deltalake and pyiceberg support."""
_PATH_OPTIONS: Final = ("path", "spool", "config", "warehouse", "staging")
_SQLITE_PREFIX: Final = "sqlite:///"
_WORKING_DIRECTORY: Final = Path()


def parse_scheme(location: str) -> str:
    """Return the scheme in lower case; empty for a path."""
    found = _SCHEME_PATTERN.match(location)
    return found[1].lower() if found else ""


def is_local(location: str) -> bool:
    """Whether a location is a path or a `file:` URI."""
    return parse_scheme(location) in _LOCAL_SCHEMES


def is_object_store(location: str) -> bool:
    """Whether a location is in an object store."""
    return parse_scheme(location) in OBJECT_STORE_SCHEMES


def has_bucket(location: str) -> bool:
    """Whether a location with a scheme names a bucket; `s3:/x` and `s3:///x` do not."""
    return re.match(r"[^:/]+://[^/]", location) is not None


def to_local_path(location: str) -> Path:
    """Return the absolute path of a local location. Raises OptionError if it is empty or not local."""
    if not location:
        raise OptionError("a path is empty: name a folder ('.' is the working directory)")
    if not is_local(location):
        raise OptionError(
            f"{location} is not a local folder, which is required here: name one, on a cluster one "
            f"that all machines mount; a local folder of this name is ./{location}"
        )
    path = location
    if parse_scheme(location):
        path = location[len("file:") :]
        if path.startswith("//") and not path.startswith("///"):
            raise OptionError(f"{location} names a host: write file:///PATH")
    return Path(path).absolute()


def local_uri(path: Path) -> str:
    """Return the `file:` URI of a path without percent encoding, as Spark and pyiceberg expect it."""
    return f"file://{path}"


def resolve(location: str, folder: Path = _WORKING_DIRECTORY) -> str:
    """Return a location that does not depend on the working directory; relative paths start at `folder`."""
    scheme = parse_scheme(location)
    if not location or scheme not in _LOCAL_SCHEMES:
        return location
    path = location[len(f"{scheme}:") :] if scheme else location
    if path.startswith("/"):
        return location
    path = str((folder / path).absolute())
    return local_uri(Path(path)) if scheme else path


def resolve_options(
    options: Mapping[str, str], folder: Path = _WORKING_DIRECTORY
) -> dict[str, str]:
    """Return options with all their locations resolved. Option names are case-insensitive."""
    return {name: _resolve_option(name.lower(), value, folder) for name, value in options.items()}


def _resolve_option(name: str, value: str, folder: Path) -> str:
    if name in _PATH_OPTIONS:
        return resolve(value, folder)
    if name == "catalogue" and value.startswith(_SQLITE_PREFIX):
        path = value.removeprefix(_SQLITE_PREFIX)
        return (
            value
            if not path or path.startswith(("/", ":"))
            else f"{_SQLITE_PREFIX}{resolve(path, folder)}"
        )
    return value
