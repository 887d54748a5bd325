"""`recado pipeline`: the verbs that ask a node of recado over HTTP: list, show."""

from __future__ import annotations

from .command import Resource, list_command, show_command
from .output import count, key, rate, text

COLUMNS = (
    key("name", "name"),
    text("vhost", "vhost"),
    text("state", "state"),
    text("stale", "stale"),
    count("batch", "batch"),
    count("rows", "rows"),
    rate("rows/s", "rows_per_second"),
    count("lag", "lag"),
    count("dead letters", "dead_letters"),
    text("error", "error"),
)
SHOWN_FIRST = ("name", "vhost", "state", "stale", "batch", "rows", "lag", "error")

COMMAND = Resource(
    {
        "list": list_command("pipelines", COLUMNS, has_vhost=False),
        "show": show_command("pipeline", "pipelines", SHOWN_FIRST, has_vhost=False),
    }
)
