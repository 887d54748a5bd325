"""The parts of messages that a user sees over HTTP. Peek, get and reveal, all routes that show bodies, use this module.

Permissions to read a queue are checked by the routes. Beyond them, `management.body_tag` is the tag of users
that see bodies at all, and `management.masked_fields` are hidden from all users. Users with the tag
`management.reveal_tag` may reveal the masked fields of one message, which is recorded in the audit log.

CMA1  A selector that compares a field that the user does not see is refused: its answers would reveal the value.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.amqp.properties import Properties
from recado.definitions.exporter import to_json_object

from .masked_fields import BODY, JSON_MAX_BYTES, MaskedFields
from .request import bad_request, not_authorised

if TYPE_CHECKING:
    from recado.broker.access import User
    from recado.broker.message_filter import MessageFilter
    from recado.selector import Selector

ADMINISTRATOR_TAG: Final = "administrator"
UNMASKED: Final = MaskedFields()
_WITHHELD: Final = MaskedFields((BODY,))


class MessageAccess:
    """Describes messages as one user sees them."""

    def __init__(self, fields: MaskedFields, *, sees_bodies: bool) -> None:
        self._fields = fields
        self._body_fields = fields if sees_bodies else _WITHHELD

    def body_bytes_max(self, truncate: int) -> int | None:
        """Return how much of a body `describe` needs to show `truncate` bytes of it, None for all of it.

        A negative `truncate` shows whole bodies.
        """
        if self._body_fields.masks_body:
            return 0
        if truncate < 0:
            return None
        return max(truncate, JSON_MAX_BYTES + 1) if self._body_fields.reads_json else truncate

    def describe(
        self,
        properties: Properties,
        body: bytes,
        *,
        body_bytes: int | None = None,
        encoding: str = "auto",
        truncate: int = -1,
    ) -> dict[str, Any]:
        """Return the properties and the payload of a message as the user sees them, as JSON values.

        `masked` lists the paths of the fields that are not shown; it is absent if all are. `body_bytes` is the
        size of the whole body if `body` is shortened, at least to `body_bytes_max`.
        """
        shown_properties = describe_properties(properties)
        headers = shown_properties.get("headers", {})
        shown_headers, masked_headers = self._fields.mask_headers(headers)
        if masked_headers:
            shown_properties["headers"] = shown_headers
        # Kombu, and so Celery, writes the compression in a header.
        content_encoding = properties.content_encoding or str(headers.get("compression") or "")
        content_type = properties.content_type or ""
        shown_body, masked_body = self._body_fields.mask_body(body, content_type, content_encoding)
        if truncate >= 0:
            shown_body = shown_body[:truncate]
        size = len(body) if body_bytes is None else body_bytes
        payload, payload_encoding = _encode_payload(
            shown_body, encoding, is_cut=len(shown_body) < size
        )
        described: dict[str, Any] = {
            "payload_bytes": size,
            "properties": shown_properties,
            "payload": payload,
            "payload_encoding": payload_encoding,
        }
        if masked_headers or masked_body:
            described["masked"] = [*masked_headers, *masked_body]
        return described

    def parse_selector(self, text: str) -> MessageFilter | None:
        """Return the filter of a selector, None for an empty one. Raises `ApiError`, also for CMA1."""
        if not text:
            return None
        from recado.broker.message_filter import FIELDS, MessageFilter

        self._parse(text, FIELDS)
        return MessageFilter(text)

    def parse_archive_selector(self, text: str) -> Selector | None:
        """Return a selector for rows of an archive, None for an empty one. Raises `ApiError`, also for CMA1."""
        return self._parse(text, None) if text else None

    def _parse(self, text: str, fields: frozenset[str] | None) -> Selector:
        from recado.selector import SelectorError, parse

        try:
            selector = parse(text, fields) if fields is not None else parse(text)
        except SelectorError as error:
            raise bad_request(f"selector: {error.summary}") from error
        probed = self._fields.find_probed_field(selector)
        probed = probed or self._body_fields.find_probed_field(selector)
        if probed is not None:
            raise not_authorised(f"selector: {probed} is not shown to this user")
        return selector


class MessagePolicy:
    """The settings that decide which parts of messages users see."""

    def __init__(
        self,
        fields: MaskedFields = UNMASKED,
        *,
        body_tag: str | None = None,
        reveal_tag: str = ADMINISTRATOR_TAG,
    ) -> None:
        """See `ManagementSettings`. Without `body_tag`, users see the bodies in queues that they may read."""
        self._fields = fields
        self._body_tag = body_tag
        self._reveal_tag = reveal_tag

    def sees_bodies(self, user: User) -> bool:
        return self._body_tag is None or self._body_tag in user.tags

    def may_reveal(self, user: User) -> bool:
        """Whether the user may see the masked fields of a message that it names."""
        return self.sees_bodies(user) and self._reveal_tag in user.tags

    def access_of(self, user: User) -> MessageAccess:
        """Return the object that describes messages to this user."""
        return MessageAccess(self._fields, sees_bodies=self.sees_bodies(user))


FULL_ACCESS: Final = MessageAccess(UNMASKED, sees_bodies=True)
"""For revealed messages."""


def _encode_payload(body: bytes, encoding: str, *, is_cut: bool) -> tuple[str, str]:
    """Return a payload as text, and the encoding that was used: `string` or `base64`.

    A character at the end that is not whole is left out of a text that was cut.
    """
    if encoding == "auto":
        try:
            return body.decode(), "string"
        except UnicodeDecodeError as error:
            if is_cut and error.reason == "unexpected end of data":
                return body[: error.start].decode(), "string"
    return base64.b64encode(body).decode(), "base64"


def describe_properties(properties: Properties) -> dict[str, Any]:
    """Return the properties that are set as a JSON object."""
    described: dict[str, Any] = {}
    for name in Properties.__struct_fields__:
        value = getattr(properties, name)
        if value is None:
            continue
        if name == "headers":
            described[name] = to_json_object(value)
        else:
            described[name] = msgspec.to_builtins(value)
    return described
