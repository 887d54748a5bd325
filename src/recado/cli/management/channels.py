"""`recado channels`: list, show."""

from __future__ import annotations

from .command import Resource, list_command, show_command
from .output import count, key, rate, text

COLUMNS = (
    key("name", "name"),
    text("user", "user"),
    text("vhost", "vhost"),
    text("state", "state"),
    text("confirms", "confirm"),
    text("tx", "transactional"),
    count("prefetch", "prefetch_count"),
    count("unacked", "messages_unacknowledged"),
    count("unconfirmed", "messages_unconfirmed"),
    count("consumers", "consumer_count"),
    rate("publish", "message_stats.publish_details.rate"),
    rate("deliver", "message_stats.deliver_get_details.rate"),
)
SHOWN_FIRST = ("name", "user", "vhost", "state", "prefetch_count", "messages_unacknowledged")

COMMAND = Resource(
    {
        "list": list_command("channels", COLUMNS, has_vhost=False),
        "show": show_command("channel", "channels", SHOWN_FIRST, has_vhost=False),
    }
)
