"""The read model: everything that pages show, in one SQLite file.

The history decides what is in it. `apply` stores a batch of publications together with the vector that covers them
in one transaction, so each publication is applied exactly once, whenever the program is killed. It gives each the next
**position**: the order in which all browsers show messages.

CHR1  A publication whose id was applied before changes nothing: a browser that never got an answer sends it again.
CHR2  Only its author changes a message.
RM3  `read_position` never falls.

All methods block, and are called in threads: `ReadModelWriter` has one, `Reader` a connection per thread.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from .conversation import PRIVATE_PREFIX, ROOM_PREFIX, participants
from .messages import (
    QUOTE_CHARACTERS_MAX,
    Applied,
    ChatUser,
    Kind,
    Publication,
    QuotedMessage,
    StoredMessage,
)
from .schema import SCHEMA, SCHEMA_VERSION

BUSY_TIMEOUT_S: Final = 30.0
UNREAD_MAX_COUNT: Final = 1_000
"""More are counted as this many."""
SEARCH_ROWS_MAX_COUNT: Final = 5_000
"""Matches in all conversations that are looked at for those of one user."""

_COLUMNS: Final = """
    m.id, m.conversation, m.position, m.author_id, m.author_name, m.text, m.time_ms, m.client_id, m.thread,
    m.edited_ms, m.deleted, q.id, q.author_name, substr(q.text, 1, 200)
"""
_FROM: Final = "from messages m left join messages q on q.id = m.quote"

POSITION_MAX: Final = 1 << 62


class MessagePage(NamedTuple):
    """Messages in order, and whether there are more beyond them."""

    messages: list[StoredMessage]
    more: bool
    """Whether there are older ones."""
    more_after: bool = False
    """Whether there are newer ones."""


class Missed(NamedTuple):
    """What a browser has not seen of a conversation."""

    position: int
    messages: list[StoredMessage]
    changed: list[StoredMessage]
    more: bool
    """Whether there are too many to send."""


class RoomMembership(NamedTuple):
    """A conversation of a user."""

    key: str
    read_position: int
    unread_count: int
    last_message: StoredMessage | None
    last_position: int
    """The newest publication that the other fields take into account."""


class ReadModelSnapshot(NamedTuple):
    """What the server keeps in memory, as it was when the program started."""

    users: list[ChatUser]
    conversations: dict[str, int]
    """The last position of each."""
    members: list[tuple[str, str]]
    """User and conversation."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open a connection for use in one thread at a time."""
    database = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = normal")
    database.execute("pragma temp_store = memory")
    return database


class ReadModelWriter:
    """Changes the read model; used in one thread."""

    def __init__(self, path: Path) -> None:
        self._database = open_database(path)
        version = self._database.execute("pragma user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            self._database.close()
            raise ValueError(f"{path}: version {version} is not {SCHEMA_VERSION} of this program")
        self._database.executescript(SCHEMA)
        self._database.execute(f"pragma user_version = {SCHEMA_VERSION}")
        row = self._database.execute("select vector, position from progress").fetchone()
        self.vector: str = row[0] if row else ""
        self._position: int = row[1] if row else 0

    def close(self) -> None:
        self._database.close()

    # ── the history ───────────────────────────────────────────────────────────────────────────────────────

    def apply(self, publications: Iterable[Publication], vector: str) -> list[Applied]:
        """Apply publications in order and store the vector; return those that changed something."""
        position = self._position
        applied: list[Applied] = []
        with self._database as database:
            for publication in publications:
                if self._was_applied(publication.id) or not _is_participant(publication):
                    continue
                if publication.kind is Kind.MESSAGE:
                    message = self._add_message(publication, position + 1)
                else:
                    found = self._change_message(publication, position + 1)
                    if found is None:
                        continue
                    message = found
                position += 1
                previous = self._advance(message.conversation, position, publication)
                applied.append(
                    Applied(publication.id, publication.kind, position, previous, message)
                )
            database.execute("insert or replace into progress values (1, ?, ?)", (vector, position))
        self._position = position
        return applied

    def _was_applied(self, publication_id: str) -> bool:
        return find_position(self._database, publication_id) is not None

    def _add_message(self, publication: Publication, position: int) -> StoredMessage:
        self._database.execute(
            "insert into messages values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, null, 0, ?)",
            (
                position,
                publication.id,
                publication.conversation,
                publication.author.id,
                publication.author.name,
                publication.client_id,
                publication.text,
                publication.time_ms,
                publication.thread,
                publication.quote,
                position,
            ),
        )
        self._database.execute(
            "insert into words (rowid, text) values (?, ?)", (position, publication.text)
        )
        message = load_message(self._database, publication.id)
        assert message is not None
        return message

    def _change_message(self, publication: Publication, position: int) -> StoredMessage | None:
        """Change a message and return it; None if it is not there, deleted, or another user's (CHR2)."""
        target = load_message(self._database, publication.target)
        if (
            target is None
            or target.deleted
            or target.author.id != publication.author.id
            or target.conversation != publication.conversation
        ):
            return None
        deleted = publication.kind is Kind.DELETION
        text = "" if deleted else publication.text
        database = self._database
        database.execute(
            "insert into words (words, rowid, text) values ('delete', ?, ?)",
            (target.position, target.text),
        )
        if not deleted:
            database.execute(
                "insert into words (rowid, text) values (?, ?)", (target.position, text)
            )
        database.execute(
            "update messages set text = ?, edited_ms = ?, deleted = ?, changed = ? where id = ?",
            (text, None if deleted else publication.time_ms, deleted, position, target.id),
        )
        database.execute("insert into changes values (?, ?)", (publication.id, position))
        return load_message(database, target.id)

    def _advance(self, key: str, position: int, publication: Publication) -> int:
        """Set the last position of a conversation and return the one before; make it if it is new."""
        database = self._database
        row = database.execute(
            "select last_position from conversations where key = ?", (key,)
        ).fetchone()
        self._add_conversation(key, publication.time_ms)
        database.execute(
            "update conversations set last_position = ? where key = ?", (position, key)
        )
        if key.startswith(PRIVATE_PREFIX):
            for user_id in set(participants(key)):
                self._add_member(user_id, key, 0)
        return 0 if row is None else int(row[0])

    # ── users and conversations ───────────────────────────────────────────────────────────────────────────

    def add_user(self, user: ChatUser, session_digest: bytes, now_ms: int) -> None:
        with self._database as database:
            database.execute("insert into users values (?, ?, ?)", (user.id, user.name, now_ms))
            self._add_session(user.id, session_digest, now_ms)

    def ensure_user(self, user: ChatUser, now_ms: int) -> None:
        """Add a user without a session, unless it exists."""
        with self._database as database:
            row = (user.id, user.name, now_ms)
            database.execute("insert or ignore into users values (?, ?, ?)", row)

    def add_session(self, user_id: str, session_digest: bytes, now_ms: int) -> None:
        with self._database:
            self._add_session(user_id, session_digest, now_ms)

    def _add_session(self, user_id: str, session_digest: bytes, now_ms: int) -> None:
        row = (session_digest, user_id, now_ms)
        self._database.execute("insert into sessions values (?, ?, ?)", row)

    def delete_session(self, session_digest: bytes) -> int | None:
        """Delete a session; return how many its user still has, None if it was deleted before."""
        with self._database as database:
            rows = database.execute(
                "delete from sessions where digest = ? returning user_id", (session_digest,)
            ).fetchall()
            if not rows:
                return None
            count = database.execute(
                "select count(*) from sessions where user_id = ?", rows[0]
            ).fetchone()
            return int(count[0])

    def join(self, user_id: str, key: str, now_ms: int) -> None:
        """Make a user a member of a conversation, having read everything that is in it."""
        with self._database:
            self._add_conversation(key, now_ms)
            row = self._database.execute(
                "select last_position from conversations where key = ?", (key,)
            ).fetchone()
            self._add_member(user_id, key, int(row[0]))

    def leave(self, user_id: str, key: str) -> None:
        with self._database as database:
            database.execute(
                "delete from members where user_id = ? and conversation = ?", (user_id, key)
            )

    def mark_read(self, user_id: str, key: str, position: int) -> tuple[int, int, int]:
        """Raise the read position of a user (RM3).

        Returns it, the number of unread messages, and the newest position that this number takes into account.
        """
        with self._database as database:
            database.execute(
                "update members set read_position = max(read_position, min(?, "
                "  (select last_position from conversations where key = conversation)))"
                " where user_id = ? and conversation = ?",
                (position, user_id, key),
            )
        return *read_state(self._database, user_id, key), read_last(self._database, key)

    def _add_conversation(self, key: str, now_ms: int) -> None:
        self._database.execute(
            "insert or ignore into conversations (key, created_ms) values (?, ?)", (key, now_ms)
        )

    def _add_member(self, user_id: str, key: str, read_position: int) -> None:
        self._database.execute(
            "insert or ignore into members values (?, ?, ?)", (user_id, key, read_position)
        )

    def load_snapshot(self) -> ReadModelSnapshot:
        database = self._database
        users = [ChatUser(*row) for row in database.execute("select id, name from users")]
        positions = dict(database.execute("select key, last_position from conversations"))
        members = database.execute("select user_id, conversation from members").fetchall()
        return ReadModelSnapshot(users, positions, members)


class Reader:
    """Reads the read model, in any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    def _connect(self) -> sqlite3.Connection:
        database: sqlite3.Connection | None = getattr(self._local, "database", None)
        if database is None:
            database = self._local.database = open_database(self._path)
            self._opened.append(database)
        return database

    def close(self) -> None:
        """Close the connections of all threads, which must have ended."""
        for database in self._opened:
            database.close()

    def find_position(self, publication_id: str) -> int | None:
        return find_position(self._connect(), publication_id)

    def find_message(self, message_id: str) -> StoredMessage | None:
        return load_message(self._connect(), message_id)

    def find_session(self, session_digest: bytes, since_ms: int) -> str | None:
        """Return the user of a session that is not older than `since_ms`."""
        row = (
            self._connect()
            .execute(
                "select user_id from sessions where digest = ? and created_ms >= ?",
                (session_digest, since_ms),
            )
            .fetchone()
        )
        return None if row is None else str(row[0])

    def load_page(self, key: str, before: int | None, limit: int) -> MessagePage:
        """Return the last messages of a conversation before a position."""
        rows = self._select(
            "where m.conversation = ? and m.position < ? order by m.position desc limit ?",
            (key, before if before is not None else POSITION_MAX, limit + 1),
        )
        return MessagePage(rows[:limit][::-1], len(rows) > limit, before is not None)

    def load_after(self, key: str, after: int, limit: int) -> MessagePage:
        """Return the first messages of a conversation after a position."""
        rows = self._select(
            "where m.conversation = ? and m.position > ? order by m.position limit ?",
            (key, after, limit + 1),
        )
        return MessagePage(rows[:limit], True, len(rows) > limit)

    def load_around(self, key: str, message_id: str, limit: int) -> MessagePage | None:
        """Return a message with those before and after it; None if the conversation has no such message."""
        found = self.find_message(message_id)
        if found is None or found.conversation != key:
            return None
        before = self.load_page(key, found.position, limit // 2)
        after = self.load_after(key, found.position - 1, limit - limit // 2)
        return MessagePage(before.messages + after.messages, before.more, after.more_after)

    def load_missed(self, key: str, seen: int, limit: int, characters_max: int) -> Missed:
        """Return the messages after a position, and the older ones that were changed after it."""
        database = self._connect()
        last = read_last(database, key)
        if last <= seen:
            return Missed(last, [], [], more=False)
        bounds = (key, seen, last, limit + 1)
        messages = self._select(
            "where m.conversation = ? and m.position > ? and m.position <= ?"
            " order by m.position desc limit ?",
            bounds,
        )[::-1]
        changed = self._select(
            "where m.conversation = ? and m.changed > ? and m.changed <= ? and m.position <= ?"
            " order by m.changed desc limit ?",
            (key, seen, last, seen, limit + 1),
        )[::-1]
        size = sum(len(each.text) for each in (*messages, *changed))
        more = max(len(messages), len(changed)) > limit or size > characters_max
        return Missed(last, [] if more else messages, [] if more else changed, more)

    def load_memberships(self, user_id: str, keys: Sequence[str]) -> list[RoomMembership]:
        """Return what the list of conversations shows of each."""
        database = self._connect()
        found = []
        for key in keys:
            database.execute(
                "begin"
            )  # one state of the database for all that is said of a conversation
            try:
                read_position, unread = read_state(database, user_id, key)
                last = self.load_page(key, None, 1).messages
                shown = last[0] if last else None
                found.append(
                    RoomMembership(key, read_position, unread, shown, read_last(database, key))
                )
            finally:
                database.rollback()
        return found

    def search(
        self, query: str, keys: Sequence[str], before: int | None, limit: int
    ) -> MessagePage:
        """Return the newest messages before a position that contain all words of a query."""
        places = ",".join("?" * len(keys))
        rows = self._select(
            "where m.position in (select rowid from words where words match ? and rowid < ?"
            f" order by rowid desc limit {SEARCH_ROWS_MAX_COUNT})"
            f" and m.conversation in ({places}) and not m.deleted order by m.position desc limit ?",
            (query, before if before is not None else POSITION_MAX, *keys, limit + 1),
        )
        return MessagePage(rows[:limit], len(rows) > limit)

    def _select(self, condition: str, parameters: tuple[Any, ...]) -> list[StoredMessage]:
        rows = self._connect().execute(f"select {_COLUMNS} {_FROM} {condition}", parameters)
        return [_to_message(row) for row in rows]


def format_query(text: str) -> str:
    """Return a query of FTS5 for messages with all words of a text; the last may be unfinished."""
    text = text.replace("\0", " ")  # which ends a query of SQLite
    words = ['"' + word.replace('"', '""') + '"' for word in text.split()]
    return " ".join(words) + "*" if words else ""


def find_position(database: sqlite3.Connection, publication_id: str) -> int | None:
    row = database.execute(
        "select position from messages where id = ?1 union all"
        " select position from changes where id = ?1",
        (publication_id,),
    ).fetchone()
    return None if row is None else int(row[0])


def load_message(database: sqlite3.Connection, message_id: str) -> StoredMessage | None:
    row = database.execute(f"select {_COLUMNS} {_FROM} where m.id = ?", (message_id,)).fetchone()
    return None if row is None else _to_message(row)


def read_state(database: sqlite3.Connection, user_id: str, key: str) -> tuple[int, int]:
    """Return the read position of a user in a conversation, and the number of messages of others after it."""
    row = database.execute(
        "select read_position from members where user_id = ? and conversation = ?", (user_id, key)
    ).fetchone()
    read_position = 0 if row is None else int(row[0])
    count = database.execute(
        "select count(*) from (select 1 from messages where conversation = ? and position > ?"
        " and author_id != ? and not deleted limit ?)",
        (key, read_position, user_id, UNREAD_MAX_COUNT),
    ).fetchone()
    return read_position, int(count[0])


def read_last(database: sqlite3.Connection, key: str) -> int:
    """Return the position of the last publication of a conversation; 0 if there is none."""
    row = database.execute(
        "select last_position from conversations where key = ?", (key,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def _to_message(row: Sequence[Any]) -> StoredMessage:
    quote = None
    if row[11] is not None:
        quote = QuotedMessage(row[11], row[12], row[13][:QUOTE_CHARACTERS_MAX])
    return StoredMessage(
        id=row[0],
        conversation=row[1],
        position=row[2],
        author=ChatUser(row[3], row[4]),
        text=row[5],
        time_ms=row[6],
        client_id=row[7],
        thread=row[8],
        edited_ms=row[9],
        deleted=bool(row[10]),
        quote=quote,
    )


def _is_participant(publication: Publication) -> bool:
    """Whether the author may write in the conversation, as the server has checked before it published."""
    key = publication.conversation
    if key.startswith(ROOM_PREFIX):
        return True
    return (
        key.startswith(PRIVATE_PREFIX)
        and key.count(":") == 2
        and publication.author.id in participants(key)
    )
