"""The first frames of a connection: who and what there is, and what the device has missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from .broadcasts import Broadcasts
from .conversation import from_wire
from .delivery import Courier
from .device import Device, OnlineUser
from .directory import Directory
from .frames import encode_frame
from .messages import ChatUser
from .names import NAME_CHARACTERS_MAX, ROOM_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, RefusedError

LISTED_MAX_COUNT: Final = 2_000
"""Users, and rooms, in the first frame."""


class ChatWelcome:
    """Greets devices."""

    def __init__(
        self,
        directory: Directory,
        online: Mapping[str, OnlineUser],
        courier: Courier,
        broadcasts: Broadcasts,
    ) -> None:
        self._directory = directory
        self._online = online
        self._courier = courier
        self._broadcasts = broadcasts

    async def resume(
        self,
        online: OnlineUser,
        device: Device,
        positions: Mapping[str, int],
        broker_state: str,
    ) -> None:
        """Tell a device of its conversations, and give it what it has missed of those that it names."""
        user_id = online.user.id
        keys = self._directory.conversations_of(user_id)
        conversations = await self._courier.describe(user_id, keys)
        welcome = self._make_welcome(online.user, keys, conversations)
        device.push(encode_frame({**welcome, "broker": broker_state}))
        await device.drain()
        named: dict[str, int] = {}
        for conversation, position in positions.items():
            with suppress(RefusedError):
                key = from_wire(conversation, user_id)
                if self._directory.is_member(user_id, key):
                    named[key] = max(0, position)
                    continue
            device.push(encode_frame({"type": "left", "conversation": conversation}))
        for key, described in zip(keys, conversations, strict=True):
            if key not in named:
                device.seen[key] = described["last_position"]
        device.catching_up.update(named)
        device.is_ready = True
        for key, position in named.items():
            await self._courier.push_missed(online, device, key, position)
            device.catching_up.discard(key)
        self._courier.catch_up_user(online)

    def _make_welcome(
        self, user: ChatUser, keys: Sequence[str], conversations: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        ids = dict.fromkeys([user.id])
        for key in keys:
            ids.update(dict.fromkeys(self._directory.members_of(key)))
        ids.update(dict.fromkeys(self._online))
        found = [self._directory.find_user(each) for each in list(ids)[:LISTED_MAX_COUNT]]
        return {
            "type": "welcome",
            "me": user,
            "users": [
                {"id": each.id, "name": each.name, "online": self._broadcasts.is_online(each.id)}
                for each in found
                if each is not None
            ],
            "conversations": conversations,
            "rooms": self.list_rooms(),
            "limits": {
                "name": NAME_CHARACTERS_MAX,
                "room": ROOM_CHARACTERS_MAX,
                "text": TEXT_CHARACTERS_MAX,
            },
        }

    def list_rooms(self) -> list[dict[str, Any]]:
        """Return the rooms that exist, those with the most members first."""
        rooms = [
            {
                "name": room,
                "members": self._directory.member_count(key),
                "last_position": self._directory.last_position(key),
            }
            for key, room in self._directory.rooms()
        ]
        rooms.sort(key=lambda room: (-int(str(room["members"])), room["name"]))
        return rooms[:LISTED_MAX_COUNT]
