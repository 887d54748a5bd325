"""Fields of messages that the HTTP API does not show: `management.masked_fields`.

A masked field is named as in a selector: `headers.authorization`, `json.card.number`, `json."card number"`, or
`body` for all bodies. Names are compared without regard to case, and a path leads through arrays: it concerns
each element. The value is replaced, whatever its type; numbers and texts beside it stay as they were written.

CMF1  A body in which masked fields cannot be found although it may have some is withheld as a whole: a compressed or
      otherwise encoded body, JSON longer than `JSON_MAX_BYTES`, and JSON with the name of such a field that is
      invalid or longer than `MASKED_JSON_MAX_BYTES`. Text and bytes that are not JSON are shown.
CMF2  If a name occurs twice in an object through which a path leads, one of the two fields is shown, masked if the
      name is. So it does not matter which of them the parser of a client takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from recado.selector import Selector
    from recado.selector.tree import MessageField, NestedField

MASK: Final = "***"
BODY: Final = "body"
JSON_MAX_BYTES: Final = 1 << 20  # in which the names of masked fields are searched
MASKED_JSON_MAX_BYTES: Final = 64 * 1024  # from which they are removed, in 13 ms at worst
_FIELDS: Final = frozenset(("headers", "json", BODY))
_ENCODED_MASK: Final = msgspec.Raw(msgspec.json.encode(MASK))
# Content encodings that do not change octets; Celery writes `utf-8`, and `binary` for bytes.
_PLAIN_ENCODINGS: Final = frozenset(
    ("", "identity", "utf-8", "utf8", "ascii", "us-ascii", "binary", "7bit", "8bit")
)
_JSON_START: Final = (b"{", b"[")
_BYTES_BEFORE_JSON: Final = b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n"  # spaces, and marks of byte order

_format_json = msgspec.json.format
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class InvalidMaskError(ValueError):
    """A path that does not name a header, a JSON field or the body; the text has the path and the reason."""


class _Path(NamedTuple):
    """A path, or the rest of one below a table."""

    names: tuple[str, ...]
    text: str
    """The whole path, as configured."""


_Paths: TypeAlias = list[_Path]


class MaskedBody(NamedTuple):
    """A body without its masked fields."""

    body: bytes
    masked: tuple[str, ...]
    """The paths of the fields that were masked; `body` if all of it is withheld."""


class MaskedFields:
    """The masked fields of a configuration; without any, messages are unchanged."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        """Parse paths. Raises `InvalidMaskError`."""
        self.masks_body = False
        self._header_paths: _Paths = []
        self._json_paths: _Paths = []
        for text in paths:
            source, names = _parse_path(text)
            if source == BODY:
                self.masks_body = True
            else:
                own = self._header_paths if source == "headers" else self._json_paths
                own.append(_Path(names, text))

    def __bool__(self) -> bool:
        return self.masks_body or bool(self._header_paths or self._json_paths)

    @property
    def reads_json(self) -> bool:
        """Whether bodies have to be decoded."""
        return bool(self._json_paths) and not self.masks_body

    def mask_headers(self, headers: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return headers, which are JSON values, without masked fields, and the paths of those they have."""
        if not self._header_paths:
            return headers, ()
        found: dict[str, None] = {}
        return _mask_value(headers, self._header_paths, found), tuple(found)

    def mask_body(self, body: bytes, content_type: str, content_encoding: str) -> MaskedBody:
        """Return a body without masked fields (CMF1, CMF2).

        The caller may pass only the first `JSON_MAX_BYTES` + 1 bytes of a longer body.
        """
        if self.masks_body:
            return MaskedBody(b"", (BODY,))
        if not self._json_paths:
            return MaskedBody(body, ())
        if content_encoding.strip().lower() not in _PLAIN_ENCODINGS:
            return MaskedBody(b"", (BODY,))
        start = body.lstrip(_BYTES_BEFORE_JSON)
        if start and not start.startswith(_JSON_START) and "json" not in content_type.lower():
            return MaskedBody(body, ())
        if len(body) > JSON_MAX_BYTES:
            return MaskedBody(b"", (BODY,))
        if not self._may_occur_in(body):
            return MaskedBody(body, ())
        if len(body) > MASKED_JSON_MAX_BYTES:
            return MaskedBody(b"", (BODY,))
        found: dict[str, None] = {}
        try:
            compact = _format_json(body.removeprefix(b"\xef\xbb\xbf"), indent=-1)
            shown = _mask_json(compact, self._json_paths, found)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return MaskedBody(b"", (BODY,))
        # Equal if no field was masked and none was there twice: then the original spaces can stay.
        return MaskedBody(body if shown == compact else shown, tuple(found))

    def _may_occur_in(self, body: bytes) -> bool:
        """Whether the last name of any path is in a body, or may be there in escaped form."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return True
        if "\\" in text or "\0" in text:  # NUL as in UTF-16
            return True
        text = text.casefold()
        return any(path.names[-1] in text for path in self._json_paths)

    def find_probed_field(self, selector: Selector) -> str | None:
        """Return a masked field that a selector compares, or None.

        The answers to such selectors would reveal the value.
        """
        from recado.selector.tree import iterate_fields

        for field in iterate_fields(selector.condition):
            probed = self._find_masked(*_split(field))
            if probed is not None:
                return probed
        return None

    def _find_masked(self, source: str, names: tuple[str, ...]) -> str | None:
        """Return the path that masks a field, a part of it, or a part of the body."""
        if source == "headers":
            paths = self._header_paths
        elif source not in (BODY, "json"):
            return None
        elif self.masks_body:
            return BODY
        else:
            paths = self._json_paths
        for path in paths:
            shared = min(len(names), len(path.names))
            if names[:shared] == path.names[:shared]:
                return path.text
        return None


def _split(field: MessageField | NestedField) -> tuple[str, tuple[str, ...]]:
    """Return where a selector looks for a field, and its path."""
    from recado.selector.tree import MessageField

    if isinstance(field, MessageField):
        return field.name, ()
    return field.source, tuple(map(str.casefold, field.path))


def _parse_path(text: str) -> tuple[str, tuple[str, ...]]:
    """Return where a field is, `headers`, `json` or `body`, and its path. Raises `InvalidMaskError`."""
    from recado.selector import SelectorError, parse
    from recado.selector.tree import IsNull, MessageField, NestedField

    try:
        condition = parse(f"{text} IS NULL", _FIELDS).condition
    except SelectorError as error:
        raise InvalidMaskError(f"{text!r}: {error.reason}") from error
    if isinstance(condition, IsNull) and isinstance(condition.value, MessageField | NestedField):
        return _split(condition.value)
    expected = "expected one field, such as json.card or headers.authorization"
    raise InvalidMaskError(f"{text!r}: {expected}")


def _enter(paths: _Paths, name: str) -> Iterator[_Path]:
    """Yield what is left of the paths below the field with this name."""
    folded = name.casefold()
    for path in paths:
        if path.names[0] == folded:
            yield _Path(path.names[1:], path.text)


def _mask_value(value: Any, paths: _Paths, found: dict[str, None]) -> Any:
    if isinstance(value, list):
        return [_mask_value(each, paths, found) for each in value]
    if not isinstance(value, dict):
        return value
    masked: dict[str, Any] = {}
    for name, each in value.items():
        below = list(_enter(paths, name))
        whole = next((path for path in below if not path.names), None)
        if whole is not None:
            found[whole.text] = None
            masked[name] = MASK
        else:
            masked[name] = _mask_value(each, below, found) if below else each
    return masked


def _mask_json(value: bytes, paths: _Paths, found: dict[str, None]) -> bytes:
    """Mask fields of JSON without spaces; values that are not masked are copied octet by octet."""
    if b"{" not in value:
        return value
    if value.startswith(b"["):
        items = map(bytes, _decode_array(value))
        return b"[%b]" % b",".join([_mask_json(each, paths, found) for each in items])
    if not value.startswith(b"{"):
        return value
    masked: dict[str, msgspec.Raw] = {}
    for name, raw in _decode_object(value).items():
        below = list(_enter(paths, name))
        whole = next((path for path in below if not path.names), None)
        if whole is not None:
            found[whole.text] = None
            masked[name] = _ENCODED_MASK
        else:
            masked[name] = (
                msgspec.Raw(_mask_json(bytes(raw), below, found)) if below else msgspec.Raw(raw)
            )
    return msgspec.json.encode(masked)
