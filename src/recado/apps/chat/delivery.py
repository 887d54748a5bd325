"""Messages on their way to devices: live ones from the queue of their user, missed ones from the read model.

A device has seen each conversation up to a position, and each publication names the one before it in its conversation.
So a device that lacks something is found at the next delivery, and gets everything after its position from the read
model first.

DE1  A device gets the publications of a conversation in order, each once, without a gap.
DE2  What is delivered is only a hint: a device gets a message from the read model, and only in conversations of its
     user. So a message that another program publishes to a room, with whatever headers, shows nothing and nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from recado.client import Delivery

from .acks import AckWindow
from .conversation import partner, room_of, to_wire
from .device import Device, OnlineUser
from .directory import Directory
from .frames import encode_frame, show_message
from .messages import Applied, StoredMessage
from .presentation import RecentPublications, Rendered
from .read_model import Missed, Reader

POSITION_HEADER: Final = "position"
MISSED_MAX_COUNT: Final = 200
MISSED_CHARACTERS_MAX: Final = 200_000
PARSED_MAX_COUNT: Final = 4_096
"""Properties of deliveries whose position is known: those of one message are the same in all queues."""

MEMBERS_MAX_COUNT: Final = 1_000
"""Members that a page lists of one conversation."""
LAST_MESSAGE_CHARACTERS_MAX: Final = 200

ReadInThread: TypeAlias = Callable[..., Awaitable[Any]]
_Work: TypeAlias = Callable[[OnlineUser, Device, str], Awaitable[None]]

log = logging.getLogger("recado.chat")


class Courier:
    """Gives publications to devices."""

    def __init__(self, directory: Directory, reader: Reader, read: ReadInThread) -> None:
        """`read(function, *arguments)` calls a method of the reader in a thread."""
        self._directory = directory
        self._reader = reader
        self._read = read
        self._recent = RecentPublications()
        self._parsed: dict[bytes, int] = {}
        self._acks = AckWindow()
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        self._acks.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def remember(self, applied: Sequence[Applied]) -> None:
        """Keep what was applied until it is delivered."""
        self._recent.add(applied)

    # ── live ──────────────────────────────────────────────────────────────────────────────────────────────

    def handle_deliveries(self, online: OnlineUser, deliveries: Sequence[Delivery]) -> None:
        """Give what the queue of a user delivered to the devices of the user, and acknowledge it."""
        for delivery in deliveries:
            rendered = self._recent.find(self._find_position(delivery))
            if rendered is None:  # delivered again after a restart, or not published by this server
                self.catch_up_user(online)
            else:
                self.offer(online, rendered)
            if online.traffic.is_watched:
                origin = f"exchange={delivery.exchange} tag={delivery.delivery_tag}"
                online.traffic.record("basic.deliver", online.user.id, origin)
                online.traffic.record("basic.ack", online.user.id, f"tag={delivery.delivery_tag}")
            self._acks.add(delivery)

    def _find_position(self, delivery: Delivery) -> int:
        position = self._parsed.get(delivery.raw_properties)
        if position is None:
            if len(self._parsed) >= PARSED_MAX_COUNT:
                self._parsed.clear()
            found = (delivery.properties.headers or {}).get(POSITION_HEADER)
            position = self._parsed[delivery.raw_properties] = (
                found if isinstance(found, int) else 0
            )
        return position

    def offer(self, online: OnlineUser, rendered: Rendered) -> None:
        """Push a publication to the devices that have not seen it."""
        user_id, key = online.user.id, rendered.key
        for device in online.devices:
            seen = device.seen.get(key)
            if not device.is_ready:
                pass
            elif seen is None:
                self._introduce(online, device, key)
            elif rendered.position <= seen:
                pass
            elif rendered.previous <= seen and key not in device.catching_up:
                device.seen[key] = rendered.position
                device.push_publication(rendered, user_id)
            else:
                self.catch_up(online, device, key)

    def offer_to_members(
        self, applied: Sequence[Applied], online: Mapping[str, OnlineUser]
    ) -> None:
        """Push publications that no queue delivers: those that the server had not applied when it was killed."""
        for each in applied:
            rendered = self._recent.find(each.position)
            assert rendered is not None, "`remember` was called"
            for user_id in self._directory.members_of(rendered.key):
                if user_id in online:
                    self.offer(online[user_id], rendered)

    # ── missed ────────────────────────────────────────────────────────────────────────────────────────────

    def catch_up_user(self, online: OnlineUser) -> None:
        """Give the devices of a user what they lack of any conversation."""
        for device in online.devices:
            if not device.is_ready:
                continue
            for key in self._directory.conversations_of(online.user.id):
                if key not in device.seen:
                    self._introduce(online, device, key)
                elif device.seen[key] < self._directory.last_position(key):
                    self.catch_up(online, device, key)

    def catch_up(self, online: OnlineUser, device: Device, key: str) -> None:
        """Start to push what a device lacks of a conversation, unless that is under way."""
        if key not in device.catching_up:
            self._start(online, device, key, self._push_until_current)

    def _start(self, online: OnlineUser, device: Device, key: str, work: _Work) -> None:
        async def run() -> None:
            try:
                await work(online, device, key)
            finally:
                device.catching_up.discard(key)

        device.catching_up.add(key)
        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("error while a device catches up", exc_info=task.exception())

    async def _push_until_current(self, online: OnlineUser, device: Device, key: str) -> None:
        while device in online.devices and key in device.seen:
            seen = device.seen[key]
            is_member = self._directory.is_member(online.user.id, key)
            if not is_member or seen >= self._directory.last_position(key):
                break
            await self.push_missed(online, device, key, seen)

    async def push_missed(self, online: OnlineUser, device: Device, key: str, seen: int) -> None:
        """Push everything after a position; from then on the device gets live messages of the conversation."""
        missed: Missed = await self._read(
            self._reader.load_missed, key, seen, MISSED_MAX_COUNT, MISSED_CHARACTERS_MAX
        )
        if not self._directory.is_member(online.user.id, key):
            return  # the user has left meanwhile
        device.push_missed(missed, to_wire(key, online.user.id), online.user.id, seen)
        device.seen[key] = missed.position
        await device.drain()

    def _introduce(self, online: OnlineUser, device: Device, key: str) -> None:
        """Tell a device of a conversation that is new to it, as when a user writes the first private message."""
        if key in device.catching_up or not self._directory.is_member(online.user.id, key):
            return
        self._start(online, device, key, self._push_conversation)

    async def _push_conversation(self, online: OnlineUser, device: Device, key: str) -> None:
        conversation = await self.describe(online.user.id, [key])
        device.push(encode_frame({"type": "conversation", "conversation": conversation[0]}))
        is_private = room_of(key) is None
        device.seen[key] = 0 if is_private else conversation[0]["last_position"]
        await self._push_until_current(online, device, key)

    async def describe(self, user_id: str, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return conversations as a page lists them. `last_position` is that of the newest publication that they
        take into account: a page counts what comes later."""
        memberships = await self._read(self._reader.load_memberships, user_id, keys)
        return [
            {
                "id": to_wire(each.key, user_id),
                "title": self._title_of(each.key, user_id),
                "unread": each.unread_count,
                "read_position": each.read_position,
                "last_position": each.last_position,
                "last_message": _show_last(each.last_message, user_id),
                "members": self._directory.members_of(each.key)[:MEMBERS_MAX_COUNT],
            }
            for each in memberships
        ]

    def _title_of(self, key: str, user_id: str) -> str:
        room = room_of(key)
        if room is not None:
            return room
        other = self._directory.find_user(partner(key, user_id))
        return other.name if other is not None else ""


def _show_last(message: StoredMessage | None, user_id: str) -> dict[str, Any] | None:
    if message is None:
        return None
    short = msgspec.structs.replace(message, text=message.text[:LAST_MESSAGE_CHARACTERS_MAX])
    return show_message(short, user_id)
