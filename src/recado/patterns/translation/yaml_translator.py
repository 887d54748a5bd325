"""YAML by PyYAML's C library.

Plain scalars are read by the core schema of YAML 1.2, so `no` and `12:30` are strings, and written so that readers
of YAML 1.1 agree. Bytes, times and so on have the form that they have as strings in JSON. A body is one document.

Anchors and aliases, tags and duplicate keys are refused. Values are built from the events of the parser, so depth
and number are bounded before anything is built.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from ..extra import import_package
from .content_type import recode_input, recode_output
from .object_model import check_target, from_text_form, to_text_form
from .translator import Decode, Encode

LEVELS_MAX: Final = 100
VALUES_MAX: Final = 100_000  # read in 0.2 s
_TAG_DIRECTIVES_MAX: Final = 100  # libyaml compares each with all others
_STRING_TAG: Final = "tag:yaml.org,2002:str"

_NULL: Final = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL: Final = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT: Final = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT: Final = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_SPECIAL_FLOAT: Final = re.compile(r"\.(inf|nan)\Z", re.IGNORECASE)


class YamlTranslator:
    """YAML, in UTF-8 unless the content type has another charset.

    Documents with more than `values_max` values are refused.
    """

    content_types = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")

    def __init__(self, *, values_max: int = VALUES_MAX) -> None:
        self._values_max = values_max

    def encoder(self, parameters: Mapping[str, str]) -> Encode:
        yaml = import_package("yaml")
        return recode_output(partial(_encode, yaml, _make_dumper(yaml)), parameters)

    def decoder(self, target: Any, parameters: Mapping[str, str]) -> Decode:
        yaml = import_package("yaml")
        check_target(target)

        def decode(body: bytes) -> Any:
            value = _Reader(yaml, body.decode(), self._values_max).read_document()
            return msgspec.convert(value, target, dec_hook=from_text_form)

        return recode_input(decode, parameters)


def _make_dumper(yaml: Any) -> Any:
    """Return a dumper that writes no aliases, and quotes what YAML 1.1 or 1.2 would not read as a string."""

    class Dumper(yaml.CSafeDumper):  # type: ignore[misc]  # PyYAML is imported here
        def ignore_aliases(self, data: object) -> bool:
            return True

    for name, pattern in (("bool", _BOOL), ("int", _INT), ("float", _FLOAT)):
        Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{name}", pattern, None)
    return Dumper


def _encode(yaml: Any, dumper: Any, value: Any) -> bytes:
    plain = msgspec.to_builtins(value, enc_hook=to_text_form)
    _check_depth(plain, 1)
    body: bytes = yaml.dump(
        plain, Dumper=dumper, encoding="utf-8", allow_unicode=True, sort_keys=False
    )
    return body


def _check_depth(value: Any, depth: int) -> None:
    if isinstance(value, (dict, list, tuple)):
        if depth > LEVELS_MAX:
            raise _depth_error()
        for part in value.values() if isinstance(value, dict) else value:
            _check_depth(part, depth + 1)


def _depth_error() -> ValueError:
    return ValueError(f"values are nested deeper than {LEVELS_MAX} levels")


class _Reader:
    """Builds the value of a document from the events of the parser."""

    def __init__(self, yaml: Any, text: str, values_max: int) -> None:
        if text.count("%TAG") > _TAG_DIRECTIVES_MAX:
            raise ValueError(f"there are more than {_TAG_DIRECTIVES_MAX} tag directives")
        self._yaml = yaml
        self._events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._value_count = 0
        self._values_max = values_max

    def read_document(self) -> Any:
        """Return the only document; None if there is none."""
        yaml = self._yaml
        next(self._events)  # the stream starts
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._read_value(next(self._events), 1)
        next(self._events)  # the document ends
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise ValueError("there is more than one document")
        return value

    def _read_value(self, event: Any, depth: int) -> Any:
        yaml = self._yaml
        self._value_count += 1
        if self._value_count > self._values_max:
            raise ValueError(f"there are more than {self._values_max} values")
        if event.anchor is not None:  # of an anchor or an alias
            raise ValueError(f"anchors and aliases are not accepted: {event.anchor[:100]}")
        if isinstance(event, yaml.ScalarEvent):
            return _read_scalar(event)
        if event.tag is not None:
            raise _tag_error(event)
        if depth > LEVELS_MAX:
            raise _depth_error()
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_sequence(depth)
        return self._read_mapping(depth)

    def _read_sequence(self, depth: int) -> list[Any]:
        values = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            values.append(self._read_value(event, depth + 1))
        return values

    def _read_mapping(self, depth: int) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._read_value(event, depth + 1)
            if isinstance(key, (dict, list)):
                raise ValueError("a key is a list or a mapping")
            if key in values:
                raise ValueError(f"duplicate key {str(key)[:100]!r}")
            values[key] = self._read_value(next(self._events), depth + 1)
        return values


def _read_scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:  # quoted, or tagged
        if event.tag not in (None, _STRING_TAG):
            raise _tag_error(event)
        return text
    if _INT.match(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text, base)
    if _FLOAT.match(text):
        return float(_SPECIAL_FLOAT.sub(r"\1", text))
    if _BOOL.match(text):
        return text.lower() == "true"
    return None if _NULL.match(text) else text


def _tag_error(event: Any) -> ValueError:
    return ValueError(f"tags are not accepted: {event.tag[:100]}")
