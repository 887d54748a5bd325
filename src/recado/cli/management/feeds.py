"""`recado feed`: the verbs that ask a node of recado over HTTP: list, show."""

from __future__ import annotations

from .command import Resource, list_command, show_command
from .output import count, duration, key, text

COLUMNS = (
    key("name", "name"),
    text("vhost", "vhost"),
    count("queues", "queue_count"),
    count("archives", "archive_count"),
    count("view", "view"),
    count("members", "member_count"),
    count("publishers", "publisher_count"),
    count("stored", "messages_stored"),
    count("unsynced", "messages_unsynced"),
    duration("lag", "archive_lag"),
)
SHOWN_FIRST = ("name", "vhost", "view", "member_count", "publisher_count", "messages_stored")

COMMAND = Resource(
    {
        "list": list_command("feeds", COLUMNS),
        "show": show_command("feed", "feeds", SHOWN_FIRST, has_vhost=True),
    }
)
