"""News about users, collected for a moment so that many of them are one frame."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from .conversation import room_of, to_wire
from .device import OnlineUser
from .directory import Directory
from .frames import encode_frame
from .messages import ChatUser

INTERVAL_S: Final = 0.25
TYPING_MAX_COUNT: Final = 5
"""Names in one frame: a page shows no more."""


class Broadcasts:
    """Collects presence, rooms, members and typing, and sends them to the users whom they concern."""

    def __init__(self, directory: Directory, online: dict[str, OnlineUser]) -> None:
        self._directory = directory
        self._online = online
        self._presence: dict[str, ChatUser] = {}
        self._joined: dict[str, dict[str, None]] = {}
        self._left: dict[str, dict[str, None]] = {}
        self._typing: dict[str, dict[str, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def announce_presence(self, user: ChatUser) -> None:
        """Tell everyone whether a user is online."""
        self._presence[user.id] = user
        self._schedule()

    def announce_join(self, user: ChatUser, key: str) -> None:
        self._presence[user.id] = user  # some members may not know the name yet
        self._joined.setdefault(key, {})[user.id] = None
        self._left.get(key, {}).pop(user.id, None)
        self._schedule()

    def announce_leave(self, user_id: str, key: str) -> None:
        self._left.setdefault(key, {})[user_id] = None
        self._joined.get(key, {}).pop(user_id, None)
        self._schedule()

    def announce_typing(self, user_id: str, key: str) -> None:
        typing = self._typing.setdefault(key, {})
        if len(typing) < TYPING_MAX_COUNT:
            typing[user_id] = None
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._send)

    def _send(self) -> None:
        self._timer = None
        presence, self._presence = self._presence, {}
        joined, self._joined = self._joined, {}
        left, self._left = self._left, {}
        typing, self._typing = self._typing, {}
        if presence:
            users = [
                {"id": user.id, "name": user.name, "online": self.is_online(user.id)}
                for user in presence.values()
            ]
            frame = encode_frame({"type": "presence", "users": users})
            for online in self._online.values():
                _push(online, frame)
        for key in dict.fromkeys((*joined, *left)):
            changes = {"joined": list(joined.get(key, ())), "left": list(left.get(key, ()))}
            if any(changes.values()):
                self._send_to_members(key, {"type": "members", **changes})
        rooms = [
            {"name": room, "members": self._directory.member_count(key)}
            for key in dict.fromkeys((*joined, *left))
            if (room := room_of(key)) is not None
        ]
        if rooms:
            frame = encode_frame({"type": "rooms", "rooms": rooms})
            for online in self._online.values():
                _push(online, frame)
        for key, user_ids in typing.items():
            self._send_to_members(key, {"type": "typing", "users": list(user_ids)})

    def _send_to_members(self, key: str, content: dict[str, Any]) -> None:
        make_frame = _FrameMaker(key, content)
        for user_id in self._directory.members_of(key):
            online = self._online.get(user_id)
            if online is not None and online.devices and content.get("users") != [user_id]:
                _push(online, make_frame(user_id))

    def is_online(self, user_id: str) -> bool:
        online = self._online.get(user_id)
        return online is not None and bool(online.devices)


class _FrameMaker:
    """Makes the frame about a conversation for a user; that about a room is made once."""

    def __init__(self, key: str, content: dict[str, Any]) -> None:
        self._key = key
        self._content = content
        self._shared = self._make("") if room_of(key) is not None else b""

    def _make(self, user_id: str) -> bytes:
        return encode_frame({**self._content, "conversation": to_wire(self._key, user_id)})

    def __call__(self, user_id: str) -> bytes:
        return self._shared or self._make(user_id)


def _push(online: OnlineUser, frame: bytes) -> None:
    for device in online.devices:
        device.push(frame)
