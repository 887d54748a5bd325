"""The configuration: flags override the environment, which overrides the file, which overrides defaults.

    --port 5673            a flag
    RECADO_SERVER_PORT     the environment: RECADO_, the section, the key
    [server] port = 5673   recado.toml, given by --config or found in the current folder

An unknown key is an error that names the key, where it is written, and similar keys. An invalid value is an
error that names the key, down to the user and the permission it belongs to. `load_config` gets the environment
as an argument; only `read_settings` reads that of the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from recado.node.settings import Settings, find_problems

if TYPE_CHECKING:
    from pathlib import Path  # not imported by the start of a broker without a file

CONFIG_FILE = "recado.toml"
VARIABLE_PREFIX = "RECADO_"
CLIENT_VARIABLES = frozenset(
    {"RECADO_URL", "RECADO_CONTEXT", "RECADO_PASSWORD", "RECADO_NEW_PASSWORD"}
)
"""Variables of the commands that administer a server over HTTP; they are no settings of a node."""
DEFAULT_ORIGIN = "default"
# Error messages do not repeat the values of these keys and of the keys below them.
SECRET_KEYS = ("access.", "actors.cookie", "actors.password", "oauth.client_secret")
ARCHIVES_KEY = "feeds.archives"
PATH_KEYS = (
    "node.data", "node.definitions", "server.certificate", "server.key", "server.ca", "actors.mailbox_folder",
    "oauth.jwks_file", "oauth.ca",
)  # fmt: skip

ConfigTree = dict[str, Any]


class ConfigError(Exception):
    """The configuration is wrong; the text names the key, where it is written, and what to do."""


class Config(NamedTuple):
    """The effective settings, and the origin of each key that is not a default."""

    settings: Settings
    origins: dict[str, str]

    def origin(self, key: str) -> str:
        return self.origins.get(key, DEFAULT_ORIGIN)


def load_config(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Merge the layers. `flags` maps dotted keys to values, None for flags that are not set.

    Raises `ConfigError`.
    """
    tree: ConfigTree = {}
    origins: dict[str, str] = {}

    def put(key: str, value: object, origin: str) -> None:
        section, name = key.split(".")
        tree.setdefault(section, {})[name] = value
        origins[key] = origin

    if file is not None:
        for key, value in read_file(file):
            put(key, value, str(file))
    for key, value, variable in read_environment(environment or {}):
        put(key, value, variable)
    for key, value in (flags or {}).items():
        if value is not None:
            put(key, value, f"--{key.split('.')[1].replace('_', '-')}")
    return Config(validate(tree, origins), origins)


def read_settings(
    file: Path | str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read the settings that programs of all parts share: `recado.toml` and RECADO_… variables.

    `file` is the path of the file; without it, recado.toml in the current folder is read if it exists.
    `environment` is that of the process by default; its variables override the file. Raises `ConfigError`,
    which names the key and where it is written.
    """
    return load_config(
        file=find_file(file), environment=os.environ if environment is None else environment
    ).settings


def find_file(name: Path | str | None) -> Path | None:
    """Return the path of the named file, else of recado.toml in the current folder if that exists."""
    if name is None and not os.access(CONFIG_FILE, os.F_OK):
        return None
    from pathlib import Path

    return Path(name or CONFIG_FILE)


def from_mapping(tree: object, **sections: Mapping[str, object]) -> Settings:
    """Return the settings of an embedded broker, from a mapping of sections and without files or environment.

    `sections` has defaults for keys that the mapping does not have. Raises `ConfigError`.
    """
    origin = "Broker(…)"
    copy = copy_sections(tree)
    reject_unknown_keys(copy, Settings, "", origin)
    for section, values in sections.items():
        copy[section] = {**values, **copy.get(section, {})}
    return validate(copy, {key: origin for key, _ in list_keys()})


def copy_sections(tree: object) -> ConfigTree:
    if not isinstance(tree, Mapping):
        raise ConfigError("Broker(config=…) takes a mapping with the sections of recado.toml")
    for section, keys in tree.items():
        if not isinstance(keys, Mapping):
            raise ConfigError(f"{section} in Broker(config=…) must be a mapping")
    return {section: dict(keys) for section, keys in tree.items()}


# --- the layers ----------------------------------------------------------------------------------


def read_file(file: Path) -> Iterable[tuple[str, object]]:
    """Yield the keys and values of a TOML file; paths in it are relative to its folder."""
    import tomllib

    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    reject_unknown_keys(tree, Settings, "", str(file))
    for section, keys in tree.items():
        if not isinstance(keys, dict):
            raise ConfigError(f"{section} in {file} must be a table: [{section}]")
        for name, value in keys.items():
            key = f"{section}.{name}"
            if key in PATH_KEYS and isinstance(value, str) and value:
                value = str(file.parent / value)
            elif key == ARCHIVES_KEY and isinstance(value, dict):
                value = {
                    each: resolve_archive_folder(file, archive) for each, archive in value.items()
                }
            yield key, value


def resolve_archive_folder(file: Path, archive: object) -> object:
    """Return the settings of an archive, with its folder resolved relative to the file."""
    if isinstance(archive, dict) and isinstance(archive.get("folder"), str):
        return {**archive, "folder": str(file.parent / archive["folder"])}
    return archive


def read_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, object, str]]:
    """Yield key, value and name of each variable RECADO_SECTION_KEY; lists and tables are JSON."""
    known = {variable_name(key): (key, kind) for key, kind in list_keys()}
    for variable in sorted(environment):
        text = environment[variable]
        if not variable.startswith(VARIABLE_PREFIX) or variable in CLIENT_VARIABLES:
            continue
        if is_kubernetes_variable(variable, text):
            continue
        if variable not in known:
            raise ConfigError(
                f"the environment has {variable}, which is not a setting"
                f"{suggest_similar(variable, known)}"
            )
        key, kind = known[variable]
        try:
            if is_collection(kind):
                value = msgspec.json.decode(text)
                reject_unknown_keys_in(value, kind, key, variable)
            else:
                value = msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"{key} ({variable}): {describe_error(key, text, kind, error)}"
            ) from error
        except msgspec.DecodeError as error:
            raise ConfigError(f"{key} ({variable}): expected {describe_json(kind)}") from error
        yield key, value, variable


def is_kubernetes_variable(variable: str, text: str) -> bool:
    """Whether Kubernetes sets this variable, which it does in every pod next to a service named recado:

    RECADO_SERVICE_HOST=10.0.0.1, RECADO_PORT=tcp://10.0.0.1:5672, RECADO_PORT_5672_TCP_ADDR=10.0.0.1
    """
    pattern = r"\w+_(SERVICE_HOST|SERVICE_PORT\w*|PORT_\d+_\w+)=|\w+_PORT=[a-z]+://"
    return re.match(pattern, f"{variable}={text}") is not None


# --- checking ------------------------------------------------------------------------------------


def validate(tree: ConfigTree, origins: Mapping[str, str]) -> Settings:
    """Return the tree as settings. Raises `ConfigError` with the key and where it is written."""
    error = find_validation_error(tree, Settings)
    if error is not None:
        invalid = find_innermost(InvalidValue("", tree, Settings, error))
        raise ConfigError(
            f"{invalid.key}{describe_origin(invalid.key, origins)}: {describe_error(*invalid)}"
        )
    settings = msgspec.convert(tree, Settings)
    for key, problem in find_problems(settings):
        raise ConfigError(f"{key}{describe_origin(key, origins)} {problem}")
    return settings


class InvalidValue(NamedTuple):
    """A value that does not have its type, and the error of the library."""

    key: str
    value: object
    kind: Any
    error: msgspec.ValidationError


def find_validation_error(value: object, kind: Any) -> msgspec.ValidationError | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return error
    return None


def find_innermost(invalid: InvalidValue) -> InvalidValue:
    """Return the innermost invalid part. The library does not name it: it says `users[...]`."""
    key, value, kind, _ = invalid
    if isinstance(value, dict):
        for name, part in value.items():
            if is_struct(kind):
                # Convert a struct with this field only, because a struct may restrict more than the field type.
                inner = {field.name: field.type for field in msgspec.structs.fields(kind)}[name]
                error = find_validation_error({name: part}, kind)
            elif get_origin(kind) is dict:
                inner = get_args(kind)[1]
                error = find_validation_error(part, inner)
            else:
                break
            if error is not None:
                return find_innermost(
                    InvalidValue(f"{key}.{name}" if key else name, part, inner, error)
                )
    return invalid


def describe_error(key: str, value: object, kind: Any, error: Exception) -> str:
    """Return the message of the library without its path, and with the value unless it is secret."""
    if get_origin(kind) is Literal:
        return f"expected {' or '.join(get_args(kind))}, not {value!r}"
    text = str(error).split(" - at `$")[0].replace("`", "'")
    text = text[:1].lower() + text[1:]
    if key.startswith(SECRET_KEYS) or not isinstance(value, str | int | float):
        return text
    return f"{text.partition(', got ')[0]}, not {hide_credentials(value)!r}"


def hide_credentials(value: object) -> object:
    """Return a value that may be shown: a URL without user name and password."""
    return re.sub("://.*@", "://(hidden)@", value) if isinstance(value, str) else value


def describe_json(kind: Any) -> str:
    """Return an example of a list or a table in a variable."""
    return "JSON such as " + ('{"ana": {…}}' if get_origin(kind) is dict else '["/", "orders"]')


def reject_unknown_keys(
    tree: ConfigTree, kind: type[msgspec.Struct], path: str, origin: str
) -> None:
    """Raise `ConfigError` for the first key, at any depth, that the struct `kind` does not have."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in tree.items():
        key = f"{path}{name}"
        if name not in fields:
            known = [f"{path}{field}" for field in fields]
            if not path:
                known += [each for each, _ in list_keys()]
            raise ConfigError(f"{key!r} in {origin} is not a setting{suggest_similar(key, known)}")
        reject_unknown_keys_in(value, fields[name], key, origin)


def reject_unknown_keys_in(value: object, kind: Any, key: str, origin: str) -> None:
    """Check a value that is a table of settings, or a table of such tables by name."""
    if not isinstance(value, dict):
        return
    if is_struct(kind):
        reject_unknown_keys(value, kind, f"{key}.", origin)
    elif get_origin(kind) is dict:
        for name, inner in value.items():
            reject_unknown_keys_in(inner, get_args(kind)[1], f"{key}.{name}", origin)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_collection(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) in (tuple, dict)


@cache
def list_keys() -> tuple[tuple[str, Any], ...]:
    """Return every dotted key with its type."""
    return tuple(
        (f"{section.name}.{field.name}", field.type)
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    )


def variable_name(key: str) -> str:
    return VARIABLE_PREFIX + key.replace(".", "_").upper()


def describe_origin(key: str, origins: Mapping[str, str]) -> str:
    """Return where a key is written, in parentheses; origins are known for the first two parts of a key."""
    setting = ".".join(key.split(".")[:2])
    return f" ({origins[setting]})" if setting in origins else ""


def suggest_similar(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?`, by the last part of the name: `prot` and `port` find `server.port`."""
    import difflib

    names: dict[str, list[str]] = {}
    for each in known:
        names.setdefault(each.rpartition(".")[2], []).append(each)
    close = difflib.get_close_matches(name.rpartition(".")[2], names, n=2, cutoff=0.7)
    suggestions = [each for last in close for each in names[last]]
    return f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""
