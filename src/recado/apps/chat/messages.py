"""Messages of the chat, as the history has them and as pages show them.

A publication in the history is a text with headers:

    kind          message, edit or deletion
    conversation  its key; see `conversation`
    user_id, user_name    the author, added by the enricher of the server
    client_id     chosen by the browser; with the author it makes the id of the publication
    target        the message that an edit or deletion is about
    quote         the message that this one answers; the correlation id is the first message of the thread
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from recado.patterns import Message, Translators

from .conversation import feed_key, is_id
from .names import CLIENT_ID_CHARACTERS_MAX, TEXT_CHARACTERS_MAX

CONTENT_TYPE: Final = "text/plain"
ID_BYTES: Final = 16
QUOTE_CHARACTERS_MAX: Final = 200
TRANSLATORS: Final = Translators()


class Kind(StrEnum):
    MESSAGE = "message"
    EDIT = "edit"
    DELETION = "deletion"


class ChatUser(msgspec.Struct, frozen=True):
    """A user: an id that nobody chooses, and a name that need not be unique."""

    id: str
    name: str


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has published: a message, or a change of an earlier one."""

    id: str
    kind: Kind
    conversation: str
    author: ChatUser
    client_id: str
    text: str
    time_ms: int = 0
    """When it was published, by the clock of the server."""
    target: str = ""
    thread: str | None = None
    quote: str | None = None


class QuotedMessage(msgspec.Struct, frozen=True):
    """The beginning of the message that another one answers."""

    id: str
    author_name: str
    text: str


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message in its present state."""

    id: str
    conversation: str
    position: int
    """In the order of the history."""
    author: ChatUser
    text: str
    time_ms: int
    client_id: str
    thread: str | None = None
    quote: QuotedMessage | None = None
    edited_ms: int | None = None
    deleted: bool = False


class Applied(msgspec.Struct, frozen=True):
    """A publication that is in the read model: a new message, or the new state of one."""

    publication_id: str
    kind: Kind
    position: int
    previous: int
    """The position of the publication before it in the same conversation; 0 if it is the first."""
    message: StoredMessage


class NameEnricher:
    """Adds the id and the name of the user to a message, as the server knows them."""

    def __init__(self, user: ChatUser) -> None:
        self._user = user

    def should_apply(self, message: Message[Any]) -> bool:
        return True

    def apply(self, message: Message[Any]) -> Message[Any]:
        return message.with_headers(user_id=self._user.id, user_name=self._user.name)


def make_publication_id(user_id: str, client_id: str) -> str:
    """Return the id of what a user sends under this client id: the same whenever it is sent again."""
    return hashlib.blake2b(f"{user_id}/{client_id}".encode(), digest_size=ID_BYTES).hexdigest()


def to_message(publication: Publication) -> Message[str]:
    """Return a publication as a message without its author, whom the enricher adds."""
    headers = {
        "kind": publication.kind.value,
        "conversation": publication.conversation,
        "client_id": publication.client_id,
        "target": publication.target or None,
        "quote": publication.quote,
    }
    return Message(
        body=publication.text,
        key=feed_key(publication.conversation),
        headers={name: value for name, value in headers.items() if value is not None},
        content_type=CONTENT_TYPE,
        correlation_id=publication.thread or publication.id,
        message_id=publication.id,
    )


def encode_text(text: str) -> bytes:
    body, _ = TRANSLATORS.encode(text, CONTENT_TYPE)
    return body


def parse_publication(
    message_id: str,
    headers: Mapping[str, object],
    correlation_id: str | None,
    body: bytes,
    time_ms: int,
) -> Publication | None:
    """Return what a message of the history says; None if it is none of ours or malformed."""

    def text_of(name: str) -> str:
        value = headers.get(name)
        return value if isinstance(value, str) else ""

    try:
        kind = Kind(text_of("kind"))
        text = body.decode()
    except ValueError:
        return None
    author = ChatUser(text_of("user_id"), text_of("user_name"))
    client_id, conversation = text_of("client_id"), text_of("conversation")
    thread = correlation_id if correlation_id != message_id else None
    if (
        not is_id(author.id)
        or not author.name
        or not client_id
        or len(client_id) > CLIENT_ID_CHARACTERS_MAX
        or message_id != make_publication_id(author.id, client_id)
        or len(text) > TEXT_CHARACTERS_MAX
        or not conversation
        or (kind is not Kind.MESSAGE and not is_id(text_of("target")))
    ):
        return None
    return Publication(
        id=message_id,
        kind=kind,
        conversation=conversation,
        author=author,
        client_id=client_id,
        text=text,
        time_ms=time_ms,
        target=text_of("target"),
        thread=thread,
        quote=text_of("quote") or None,
    )
