"""`recado consumers`: list."""

from __future__ import annotations

from .command import Resource, list_command
from .output import count, text

COLUMNS = (
    text("vhost", "queue.vhost"),
    text("queue", "queue.name"),
    text("tag", "consumer_tag"),
    text("channel", "channel_details.name"),
    text("user", "channel_details.user"),
    text("acks", "ack_required"),
    text("exclusive", "exclusive"),
    text("active", "active"),
    count("prefetch", "prefetch_count"),
    text("arguments", "arguments"),
)

COMMAND = Resource({"list": list_command("consumers", COLUMNS, names=("consumer_tag",))})
