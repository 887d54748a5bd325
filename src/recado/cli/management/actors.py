"""`recado actors`: the verbs that ask a node of recado over HTTP: list, show."""

from __future__ import annotations

from .command import Resource, list_command, show_command
from .output import count, key, text

COLUMNS = (
    key("name", "name"),
    text("vhost", "vhost"),
    text("state", "state"),
    text("stale", "stale"),
    count("actors", "actor_count"),
    count("waiting", "waiting"),
    count("handled", "handled"),
    count("restarts", "restarts"),
    count("dead letters", "dead_letters"),
    count("peers", "peer_count"),
    text("last failure", "last_failure.error"),
)
SHOWN_FIRST = ("name", "vhost", "state", "stale", "actor_count", "waiting", "restarts")

COMMAND = Resource(
    {
        "list": list_command("actors", COLUMNS, has_vhost=False),
        "show": show_command("actor system", "actors", SHOWN_FIRST, has_vhost=False),
    }
)
