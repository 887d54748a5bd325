"""Finding the configuration: flag over environment over file over default, and whence each came.

    --port 5673            a flag
    RECADO_SERVER_PORT     the environment: RECADO_, the section, the key
    [server] port = 5673   recado.toml, by --config or else in the current folder

A key that does not exist is an error that names the key, where it stands, and what may have been
meant. The environment is an argument; only the file is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin

import msgspec

from recado.node.settings import Settings, complaints

if TYPE_CHECKING:
    from pathlib import Path  # the start of a broker without a file does without it

FILE = "recado.toml"
PREFIX = "RECADO_"
DEFAULT = "default"
PATHS = ("node.data", "server.certificate", "server.key", "server.ca")

Tree = dict[str, Any]


class ConfigError(Exception):
    """The configuration is wrong; the text says which key, where it stands, and what to do."""


class Config(NamedTuple):
    """The effective settings, and for each key that is not a default where it came from."""

    settings: Settings
    origins: dict[str, str]

    def origin(self, key: str) -> str:
        return self.origins.get(key, DEFAULT)


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Put the layers over each other. `flags` maps dotted keys to values, None where not given."""
    tree: Tree = {}
    origins: dict[str, str] = {}

    def put(key: str, value: object, origin: str) -> None:
        section, name = key.split(".")
        tree.setdefault(section, {})[name] = value
        origins[key] = origin

    if file is not None:
        for key, value in from_file(file):
            put(key, value, str(file))
    for key, value, variable in from_environment(environment or {}):
        put(key, value, variable)
    for key, value in (flags or {}).items():
        if value is not None:
            put(key, value, f"--{key.split('.')[1].replace('_', '-')}")
    return Config(checked(tree, origins), origins)


def from_mapping(tree: Mapping[str, Mapping[str, object]]) -> Settings:
    """The settings of an embedded broker: what the program says, and nothing else."""
    origin = "Broker(config=…)"
    plain = {section: dict(keys) for section, keys in tree.items()}
    refuse_unknown(plain, Settings, "", origin)
    return checked(plain, {key: origin for key, _ in keys_of_settings()})


# --- the layers ----------------------------------------------------------------------------------


def from_file(file: Path) -> Iterable[tuple[str, object]]:
    """The keys of a TOML file; paths in it are relative to the folder it lies in."""
    import tomllib

    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    refuse_unknown(tree, Settings, "", str(file))
    for section, keys in tree.items():
        if not isinstance(keys, dict):
            raise ConfigError(f"{section} in {file} must be a table: [{section}]")
        for name, value in keys.items():
            key = f"{section}.{name}"
            if key in PATHS and isinstance(value, str):
                value = str(file.parent / value)
            yield key, value


def from_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, object, str]]:
    """RECADO_SECTION_KEY; lists and tables are written as JSON."""
    known = {variable_of(key): (key, kind) for key, kind in keys_of_settings()}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX):
            continue
        if variable not in known:
            raise ConfigError(
                f"the environment has {variable}, which is no setting{near(variable, known)}"
            )
        key, kind = known[variable]
        text = environment[variable]
        try:
            if is_collection(kind):
                value = msgspec.json.decode(text)
            else:
                value = msgspec.convert(text, kind, strict=False)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{key} ({variable}): {told(error)}") from error
        yield key, value, variable


# --- checking ------------------------------------------------------------------------------------


def checked(tree: Tree, origins: Mapping[str, str]) -> Settings:
    """The tree as settings; whatever is wrong is told with the place where it was written."""
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        path = str(error).rpartition(" - at `$.")[2].rstrip("`")
        raise ConfigError(f"{path} {origin_of(path, origins)}: {told(error)}") from error
    for key, complaint in complaints(settings):
        raise ConfigError(f"{key} {complaint}")
    return settings


def refuse_unknown(tree: Tree, kind: type[msgspec.Struct], path: str, origin: str) -> None:
    """Raise for the first key, at any depth, that `kind` does not have."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in tree.items():
        key = f"{path}{name}"
        if name not in fields:
            known = [f"{path}{field}" for field in fields]
            if not path:
                known += [each for each, _ in keys_of_settings()]
            raise ConfigError(f"{key!r} in {origin} is no setting{near(key, known)}")
        refuse_unknown_within(value, fields[name], key, origin)


def refuse_unknown_within(value: object, kind: Any, key: str, origin: str) -> None:
    """A value that is a table of settings, or a table of such tables under names of their own."""
    if not isinstance(value, dict):
        return
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        refuse_unknown(value, kind, f"{key}.", origin)
    elif get_origin(kind) is dict:
        for name, inner in value.items():
            refuse_unknown_within(inner, get_args(kind)[1], f"{key}.{name}", origin)


def is_collection(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) in (tuple, dict)


def keys_of_settings() -> Iterable[tuple[str, Any]]:
    """Every dotted key, with its type."""
    for section in msgspec.structs.fields(Settings):
        for field in msgspec.structs.fields(section.type):
            yield f"{section.name}.{field.name}", field.type


def variable_of(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def origin_of(path: str, origins: Mapping[str, str]) -> str:
    """Where the value at a path was written; the path may go deeper than a key."""
    key = ".".join(path.replace("[", ".").split(".")[:2])
    return f"({origins[key]})" if key in origins else ""


def told(error: Exception) -> str:
    """The library's message in our words: without its path, which is told before it."""
    return str(error).split(" - at `$")[0].replace("`", "'").lower()


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, by the last part of the name: `prot` and `port` find `server.port`."""
    import difflib

    tails: dict[str, list[str]] = {}
    for each in known:
        tails.setdefault(each.rpartition(".")[2], []).append(each)
    close = difflib.get_close_matches(name.rpartition(".")[2], tails, n=2, cutoff=0.7)
    meant = [each for tail in close for each in tails[tail]]
    return f"; did you mean {' or '.join(meant)}?" if meant else ""
