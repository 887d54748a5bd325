"""Options of sources and sinks: texts that become what they mean, or an error that says what is wrong.

    class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
        path: str
        max_rows_per_trigger: Annotated[int, Meta(gt=0)] | None = None

    options = read(Options, "recado", given)

Spark's options know no case, so neither do these. Checked before anything is opened or connected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, TypeVar, get_origin

import msgspec

S = TypeVar("S", bound=msgspec.Struct)

SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "mergeschema", "outputmode"})
"""What Spark itself was told, and passes on."""

_SECRET_NAMES: Final = ("storage", "password", "secret", "token", "jaas")
REDACTED: Final = "…"

_BOOLEAN_TEXTS: Final = {"true": True, "1": True, "false": False, "0": False}


class OptionError(ValueError):
    """An option is unknown, missing or has no meaning; the text says which, and what to do."""


def parse_options(kind: type[S], format_: str, given: Mapping[str, str]) -> S:
    """The options of `format(source)`."""
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
    """Raises OptionError if Spark asks for a table of its catalog, as `CREATE TABLE … USING` makes one.

    Spark gives the options of such a table to a format in Python only when the table is created, with some of
    its own. It gives none when the table is read or written.
    """
    names = {name.lower() for name in given}
    if not given or {"provider", "owner"} <= names:
        raise OptionError(
            f'format("{format_}") got no options, or is a table of a catalog (CREATE TABLE): Spark passes no '
            f"options of such a table to a format in Python, so it could not be used; {hint}"
        )


def has_option(options: Mapping[str, str], name: str) -> bool:
    """Names of options have no case."""
    return any(each.lower() == name for each in options)


def is_secret(name: str, value: str = "") -> bool:
    """Whether the value of an option may contain keys or passwords, as `storage` and URLs with a user do."""
    return any(each in name.lower() for each in _SECRET_NAMES) or ("@" in value and "://" in value)


def redact_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be shown and logged."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in options.items()}


def check_message_columns(
    types: Mapping[str, str | None], known: Mapping[str, Sequence[str]], sink: str
) -> None:
    """Whether rows can be messages for `format(sink)`. Raises OptionError.

    Types are what Spark calls them, None if that is not known yet; `known` has those of columns that mean
    something, whole or without what is in brackets.
    """
    if "body" not in types:
        raise OptionError(
            f'format("{sink}") needs a column body, of bytes or text; there are {", ".join(types)}'
        )
    for name, wanted in known.items():
        kind = types.get(name) or wanted[0]
        if kind not in wanted and kind.partition("<")[0] not in wanted:
            raise OptionError(
                f'the column {name} is {kind}, and format("{sink}") takes {" or ".join(wanted)}: '
                "cast it, or drop it"
            )


def suggest_name(name: str, known: Iterable[str], list_intro: str = "there are") -> str:
    """`did you mean …?`, or all that there is."""
    names = [*known]
    close = closest_name(name, names)
    if close:
        return f"did you mean {close}?"
    return f"{list_intro} {', '.join(names)}" if names else ""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is spelt most alike, if one is; names have no case."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def _parse_value(kind: object, text: str) -> object:
    """Booleans as Spark reads them, tables from JSON; msgspec reads numbers from texts."""
    if kind is bool:
        return _BOOLEAN_TEXTS.get(text.strip().lower(), text)
    return _parse_table(text) if get_origin(kind) is dict else text


def _parse_table(text: str) -> object:
    """A table of texts, from JSON whose values may be numbers and booleans as well."""
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


def _to_option_error(source: str, told: str, values: Mapping[str, object]) -> OptionError:
    what, _, place = told.partition(" - at `$.")
    name = place.rstrip("`")
    if name in values:
        what = what[:1].lower() + what[1:]
        if is_secret(name):
            return OptionError(
                f'option {name} of format("{source}"): {what}; write a table of texts'
            )
        return OptionError(f'option {name} of format("{source}") is {values[name]!r}: {what}')
    missing = what.rpartition("missing required field `")[2].rstrip("`")
    return OptionError(f'format("{source}") needs the option {missing}')
