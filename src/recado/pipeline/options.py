"""Parse the options of sources and sinks: strings in, a typed struct or a helpful error out.

    class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
        path: str
        max_rows_per_trigger: Annotated[int, Meta(gt=0)] | None = None

    options = parse_options(Options, "recado", given)

Option names are case-insensitive, as in Spark. Options are checked before anything is opened or connected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeVar, get_origin

import msgspec

from .errors import PipelineError

S = TypeVar("S", bound=msgspec.Struct)

SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "mergeschema", "outputmode"})
"""Options for Spark itself, which Spark also passes on to the format."""

_SECRET_NAMES: Final = ("storage", "password", "secret", "token", "jaas")
REDACTED: Final = "…"

_BOOLEAN_TEXTS: Final = {"true": True, "1": True, "false": False, "0": False}


class OptionError(PipelineError, ValueError):
    """An option is unknown, missing or invalid."""


def parse_options(kind: type[S], format_: str, given: Mapping[str, str]) -> S:
    """Parse the options of `format(format_)` into a struct of type `kind`. Raises OptionError."""
    names = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    known = [each.encode_name for each in names.values()]
    values: dict[str, object] = {}
    refused = []
    for name, text in given.items():
        field = names.get(name.lower())
        if field is not None:
            values[field.encode_name] = _parse_value(field.type, text)
        elif name.lower() not in SPARK_OPTIONS:
            refused.append(
                f'format("{format_}") has no option {name!r}; {suggest_name(name, known)}'
            )
    if refused:
        raise OptionError("; ".join(refused))
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _to_option_error(format_, str(error), values) from None


def reject_catalog_table(format_: str, given: Mapping[str, str], hint: str) -> None:
    """Raise OptionError if Spark asks for a table of its catalog, as created by `CREATE TABLE … USING`.

    Spark passes the options of such a table to a Python format only when the table is created, together with
    some options of its own. When the table is read or written, it passes none.
    """
    names = {name.lower() for name in given}
    if not given or {"provider", "owner"} <= names:
        raise OptionError(
            f'format("{format_}") got no options, or is a catalog table (CREATE TABLE). Spark does not '
            f"pass the options of such a table to a Python format, so it cannot be used; {hint}"
        )


def has_option(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is set; `name` is in lower case, and option names are case-insensitive."""
    return any(each.lower() == name for each in options)


def is_secret(name: str, value: str = "") -> bool:
    """Whether the value of an option may contain keys or passwords, as `storage` and URLs with a user do."""
    return any(each in name.lower() for each in _SECRET_NAMES) or ("@" in value and "://" in value)


def redact_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they may be shown and logged."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in options.items()}


def check_message_columns(
    types: Mapping[str, str | None], known: Mapping[str, Sequence[str]], sink: str
) -> None:
    """Check that rows can be messages for `format(sink)`. Raises OptionError.

    Args:
        types: the columns with Spark's type names; None if the type is not known yet.
        known: the columns that the sink uses, each with its accepted types. A type without parameters, such as
            `struct`, accepts all parameters.
    """
    if "body" not in types:
        raise OptionError(
            f'format("{sink}") needs a column body, binary or string; the columns are {", ".join(types)}'
        )
    for name, wanted in known.items():
        kind = types.get(name) or wanted[0]
        if kind not in wanted and kind.partition("<")[0] not in wanted:
            raise OptionError(
                f'the column {name} is {kind}, but format("{sink}") needs {" or ".join(wanted)}: '
                "cast or drop it"
            )


def suggest_name(name: str, known: Iterable[str], list_intro: str = "available are") -> str:
    """Return `did you mean …?` for a similar name, else a list of all known names."""
    names = [*known]
    close = closest_name(name, names)
    if close:
        return f"did you mean {close}?"
    return f"{list_intro} {', '.join(names)}" if names else ""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, ignoring case; None if none is similar."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def _parse_value(kind: object, text: str) -> object:
    """Parse booleans as Spark does, and tables from JSON; msgspec converts numbers."""
    if kind is bool:
        return _BOOLEAN_TEXTS.get(text.strip().lower(), text)
    return _parse_table(text) if get_origin(kind) is dict else text


def _parse_table(text: str) -> object:
    """Parse a JSON object to a table of strings; numbers and booleans become their JSON text."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if not isinstance(found, dict):
        return text
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in found.items()
    }


def _to_option_error(format_: str, error_text: str, values: Mapping[str, object]) -> OptionError:
    what, _, path = error_text.partition(" - at `$.")
    name = path.rstrip("`")
    if name in values:
        what = what[:1].lower() + what[1:]
        if is_secret(name):  # such as the table `storage`; its value must not be shown
            return OptionError(
                f'option {name} of format("{format_}"): {what}; write a table of strings'
            )
        return OptionError(f'option {name} of format("{format_}") is {values[name]!r}: {what}')
    missing = what.rpartition("missing required field `")[2].rstrip("`")
    return OptionError(f'format("{format_}") needs the option {missing}')
