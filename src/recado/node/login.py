"""How a part of the node reaches the node's own broker: by a connection, as any client does."""

from __future__ import annotations

from urllib.parse import quote

from recado.node.settings import Settings


def build_local_url(settings: Settings, address: str, vhost: str) -> str:
    """As the user that `feeds.user` names; `find_problems` saw to it that there is a plain password."""
    user = settings.feeds.user
    password = settings.access.effective_users()[user].password or ""
    return f"amqp://{quote(user, '')}:{quote(password, '')}@{address}/{quote(vhost, '')}"
