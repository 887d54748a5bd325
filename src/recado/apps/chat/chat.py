"""The chat: what users do, whether they sit at a browser or are bots.

    send ─→ history (the feed) ─→ read model ─→ exchange of the room ─→ queue of each member ─→ devices

CHT1  A send is answered with its position when it is in the history and in the read model, not before.
CHT2  The author of a message is the user of the session, whatever the browser says.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from recado.client import ClientError
from recado.patterns import Message

from .broadcasts import Broadcasts
from .broker_link import BrokerLink
from .conversation import from_wire, private_key, room_key
from .delivery import POSITION_HEADER, Courier
from .device import Device, OnlineUser
from .directory import Directory
from .drawer import Drawer
from .frames import encode_frame
from .history import ChatHistory
from .messages import (
    CONTENT_TYPE,
    Applied,
    ChatUser,
    Kind,
    NameEnricher,
    Publication,
    StoredMessage,
    encode_text,
    make_publication_id,
)
from .names import (
    FEED_NAME,
    PRIVATE_EXCHANGE,
    RefusedError,
    check_client_id,
    check_room_name,
    check_text,
    check_user_name,
)
from .presentation import route_of
from .read_model import Reader, ReadModelWriter
from .sessions import SESSION_S, make_session, session_digest
from .welcome import ChatWelcome

READER_THREADS_COUNT: Final = 2
ROOMS_PER_USER_MAX_COUNT: Final = 200
ROOMS_MAX_COUNT: Final = 10_000
USERS_MAX_COUNT: Final = 100_000
DEVICES_PER_USER_MAX_COUNT: Final = 10
OFFLINE_AFTER_S: Final = 3.0
"""A page that is loaded again is back before its user counts as offline."""
RELEASE_AFTER_S: Final = 30.0
"""The queue of a user without devices is read for this long."""

T = TypeVar("T")

log = logging.getLogger("recado.chat")


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between a demo, a test and a server."""

    welcome_rooms: tuple[str, ...] = ()
    """Rooms that every new user joins."""


class Chat:
    """Users, rooms and messages; `start` and `close` it in an event loop."""

    def __init__(self, database: Path, settings: ChatSettings) -> None:
        self.settings = settings
        self._writer = ReadModelWriter(database)
        self._writing = ThreadPoolExecutor(1, "recado-chat-write")
        self._reader = Reader(database)
        self._reading = ThreadPoolExecutor(READER_THREADS_COUNT, "recado-chat-read")
        self.directory = Directory(self._writer.load_snapshot())
        self.online: dict[str, OnlineUser] = {}
        self.broadcasts = Broadcasts(self.directory, self.online)
        self.courier = Courier(self.directory, self._reader, self.read)
        self.welcome = ChatWelcome(self.directory, self.online, self.courier, self.broadcasts)
        self.drawer = Drawer(self.online)
        self._routing: asyncio.Queue[Applied] = asyncio.Queue()
        self._own: set[str] = set()
        """Publications of this process that are not applied yet."""
        self._is_broker_connected = True
        self._repairs: set[asyncio.Task[None]] = set()

    def start(self, link: BrokerLink, make_history: Callable[..., ChatHistory]) -> None:
        """Use an open connection to the broker, and a history on it."""
        self._link = link
        self.history = make_history(self._writer, self._writing, self._handle_applied)

    async def close(self) -> None:
        self.broadcasts.close()
        self.drawer.close()
        await self.courier.close()
        tasks = list(self._repairs)
        for repair in tasks:
            repair.cancel()
        for online in self.online.values():
            if online.leaving is not None:
                online.leaving.cancel()
            if online.consuming is not None:
                online.consuming.cancel()
                tasks.append(online.consuming)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reading.shutdown()
        self._writing.shutdown()
        self._reader.close()
        self._writer.close()

    async def read(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a method of the reader in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, function, *arguments)

    async def _write(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writing, function, *arguments)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────

    async def sign_in(self, name: str) -> tuple[ChatUser, str]:
        """Make a user with a generated id; return it with the secret of its session."""
        if self.directory.user_count >= USERS_MAX_COUNT:
            raise RefusedError("name", f"the chat has {USERS_MAX_COUNT:,} users already")
        user = ChatUser(uuid.uuid4().hex, check_user_name(name))
        secret = make_session()
        await self._write(self._writer.add_user, user, session_digest(secret), _now_ms())
        self.directory.add_user(user)
        for room in self.settings.welcome_rooms:
            self.broadcasts.announce_join(user, await self._enter_room(user, room))
        return user, secret

    async def ensure_user(self, user: ChatUser) -> None:
        """Make a user without a session, such as a bot, unless it exists."""
        await self._write(self._writer.ensure_user, user, _now_ms())
        self.directory.add_user(user)

    async def add_session(self, user: ChatUser) -> str:
        """Return the secret of a further session, for another device."""
        secret = make_session()
        await self._write(self._writer.add_session, user.id, session_digest(secret), _now_ms())
        return secret

    async def find_session(self, secret: str) -> ChatUser | None:
        since_ms = _now_ms() - SESSION_S * 1000
        user_id = await self.read(self._reader.find_session, session_digest(secret), since_ms)
        return None if user_id is None else self.directory.find_user(user_id)

    async def sign_out(self, user: ChatUser, secret: str) -> None:
        """End a session and its devices; with the last one of the user, the queue of the user is deleted."""
        digest = session_digest(secret)
        left = await self._write(self._writer.delete_session, digest)
        online = self.online.get(user.id)
        if online is not None:
            for device in list(online.devices):
                if left == 0 or device.session == digest:
                    device.close("signed out")
        if left == 0:
            if online is not None:
                await self._release(online)
            with suppress(ClientError):
                await self._link.delete_user(user.id)

    # ── devices ───────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, user: ChatUser, device: Device, *, is_limited: bool = True) -> OnlineUser:
        """A device of a user is there; it gets nothing before it resumes."""
        online = self.online.get(user.id)
        if online is None:
            online = self.online[user.id] = OnlineUser(user, is_limited=is_limited)
        if online.leaving is not None:
            online.leaving.cancel()
            online.leaving = None
        if len(online.devices) >= DEVICES_PER_USER_MAX_COUNT:
            next(iter(online.devices)).close("too many devices of this user")
        if not online.devices:
            self.broadcasts.announce_presence(user)
        online.devices[device] = None
        if online.consuming is None or online.consuming.done():
            online.consuming = asyncio.create_task(self._consume(online))
        return online

    def disconnect(self, online: OnlineUser, device: Device) -> None:
        online.devices.pop(device, None)
        self.drawer.update(online)
        if not online.devices and online.leaving is None:
            loop = asyncio.get_running_loop()
            online.leaving = loop.call_later(OFFLINE_AFTER_S, self._announce_offline, online)

    def _announce_offline(self, online: OnlineUser) -> None:
        self.broadcasts.announce_presence(online.user)
        loop = asyncio.get_running_loop()
        online.leaving = loop.call_later(
            RELEASE_AFTER_S, lambda: loop.create_task(self._release(online))
        )

    async def _release(self, online: OnlineUser) -> None:
        """Stop to read the queue of a user; the broker keeps it for an hour."""
        if online.leaving is not None:
            online.leaving.cancel()
        if self.online.get(online.user.id) is online:
            del self.online[online.user.id]
        if online.consuming is not None:
            online.consuming.cancel()
            await asyncio.gather(online.consuming, return_exceptions=True)

    async def _consume(self, online: OnlineUser) -> None:
        try:
            await self._link.consume(
                online.user.id,
                lambda: self.directory.rooms_of(online.user.id),
                online.traffic,
                on_ready=partial(self._handle_ready, online),
                on_deliveries=partial(self.courier.handle_deliveries, online),
            )
        except ClientError as error:
            log.error("queue not read (user=%s error=%s)", online.user.id, error)

    def _handle_ready(self, online: OnlineUser) -> None:
        online.has_queue.set()
        self.courier.catch_up_user(online)

    def handle_broker_state(self, is_connected: bool) -> None:
        """Tell pages whether messages can be sent, and give them what no queue delivers any more."""
        self._is_broker_connected = is_connected
        frame = encode_frame({"type": "broker", "state": self.broker_state})
        for online in self.online.values():
            for device in online.devices:
                device.push(frame)
        if is_connected:
            self.catch_up_all()

    def catch_up_all(self) -> None:
        """Give all devices what they lack, because deliveries may have been lost."""
        for online in self.online.values():
            self.courier.catch_up_user(online)

    def repair_room(self, exchange: str) -> None:
        """Bind the queues of the members who are online again: the exchange of a room was deleted and declared."""
        if exchange == PRIVATE_EXCHANGE:
            return  # the queue of a user who is offline has expired
        key = room_key(exchange)
        for user_id in self.directory.members_of(key):
            online = self.online.get(user_id)
            if online is not None and online.has_queue.is_set():
                task = asyncio.create_task(self._bind_again(online, exchange))
                self._repairs.add(task)
                task.add_done_callback(self._repairs.discard)

    async def _bind_again(self, online: OnlineUser, room: str) -> None:
        with suppress(RefusedError, ClientError):
            await self._link.join(online.user.id, room, online.traffic)
        self.courier.catch_up_user(online)

    @property
    def broker_state(self) -> str:
        return "connected" if self._is_broker_connected else "reconnecting"

    # ── rooms ─────────────────────────────────────────────────────────────────────────────────────────────

    async def join(self, online: OnlineUser, device: Device, name: str) -> None:
        """Join a room, which is made if it does not exist, and answer the device."""
        key = await self._enter_room(online.user, name, online)
        self.broadcasts.announce_join(online.user, key)
        await self._answer_with_conversation(online, device, key, "joined")

    async def _enter_room(self, user: ChatUser, name: str, online: OnlineUser | None = None) -> str:
        room = check_room_name(name)
        key = room_key(room)
        if not self.directory.is_member(user.id, key):
            if len(self.directory.rooms_of(user.id)) >= ROOMS_PER_USER_MAX_COUNT:
                raise RefusedError(
                    "room", f"you are in {ROOMS_PER_USER_MAX_COUNT} rooms: leave one first"
                )
            if self.directory.room_count >= ROOMS_MAX_COUNT and not self.directory.exists(key):
                raise RefusedError("room", f"the chat has {ROOMS_MAX_COUNT:,} rooms already")
        if online is not None:
            await online.has_queue.wait()
            await self._link.join(user.id, room, online.traffic)
        await self._write(self._writer.join, user.id, key, _now_ms())
        self.directory.add_member(user.id, key)
        return key

    async def leave(self, online: OnlineUser, name: str) -> None:
        """Leave a room on all devices: the binding goes, the exchange stays."""
        room = check_room_name(name)
        key, user_id = room_key(room), online.user.id
        self.directory.require_member(user_id, key)
        await self._link.leave(user_id, room, online.traffic)
        await self._write(self._writer.leave, user_id, key)
        self.directory.remove_member(user_id, key)
        frame = encode_frame({"type": "left", "conversation": key})
        for device in online.devices:
            device.seen.pop(key, None)
            device.push(frame)
        self.broadcasts.announce_leave(user_id, key)

    async def open_private(self, online: OnlineUser, device: Device, other_id: str) -> None:
        """Start a private conversation and answer the device."""
        other = self.directory.require_user(other_id)
        key = private_key(online.user.id, other.id)
        if not self.directory.is_member(online.user.id, key):
            await self._write(self._writer.join, online.user.id, key, _now_ms())
            self.directory.add_member(online.user.id, key)
        await self._answer_with_conversation(online, device, key, "opened")

    async def _answer_with_conversation(
        self, online: OnlineUser, device: Device, key: str, answer: str
    ) -> None:
        conversation = (await self.courier.describe(online.user.id, [key]))[0]
        for each in online.devices:
            kind = answer if each is device else "conversation"
            each.push(encode_frame({"type": kind, "conversation": conversation}))
            each.seen.setdefault(key, conversation["last_position"])
        self.courier.catch_up_user(online)

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────

    async def send(
        self,
        online: OnlineUser,
        client_id: str,
        conversation: str,
        text: str,
        reply_to: str | None = None,
    ) -> tuple[str, int]:
        """Publish a message; return its id and position when it is in the history.

        Raises `RefusedError`. The same client id is published once, however often it is sent.
        """
        user = online.user
        key = from_wire(conversation, user.id)
        text = check_text(text)
        publication_id = make_publication_id(user.id, check_client_id(client_id))
        self.directory.require_member(user.id, key)
        async with online.sending:
            position = await self.read(self._reader.find_position, publication_id)
            if position is not None:
                return publication_id, position
            self._take_token(online)
            quoted = await self._find_quoted(key, reply_to)
            publication = Publication(
                id=publication_id,
                kind=Kind.MESSAGE,
                conversation=key,
                author=user,
                client_id=client_id,
                text=text,
                thread=None if quoted is None else quoted.thread or quoted.id,
                quote=None if quoted is None else quoted.id,
            )
            waiting = await self._publish(online, publication)
        return publication_id, await self._await_position(online, publication_id, waiting)

    async def change(
        self, online: OnlineUser, client_id: str, message_id: str, text: str | None
    ) -> tuple[str, int]:
        """Edit a message of the user, or without a text delete it. Raises `RefusedError`."""
        user = online.user
        publication_id = make_publication_id(user.id, check_client_id(client_id))
        new_text = "" if text is None else check_text(text)
        async with online.sending:
            position = await self.read(self._reader.find_position, publication_id)
            if position is not None:
                return publication_id, position
            self._take_token(online)
            message = await self.read(self._reader.find_message, message_id)
            if message is None or message.author.id != user.id or message.deleted:
                raise RefusedError("id", "you have no such message")
            publication = Publication(
                id=publication_id,
                kind=Kind.DELETION if text is None else Kind.EDIT,
                conversation=message.conversation,
                author=user,
                client_id=client_id,
                text=new_text,
                target=message.id,
            )
            waiting = await self._publish(online, publication)
        return publication_id, await self._await_position(online, publication_id, waiting)

    def _take_token(self, online: OnlineUser) -> None:
        now_s = asyncio.get_running_loop().time()
        if online.bucket is not None and not online.bucket.take(now_s):
            raise RefusedError("text", "you are sending too fast", retry=True)

    async def _find_quoted(self, key: str, message_id: str | None) -> StoredMessage | None:
        if message_id is None:
            return None
        quoted = await self.read(self._reader.find_message, message_id)
        if quoted is None or quoted.conversation != key:
            raise RefusedError("reply_to", "the message to answer is not in this conversation")
        return quoted

    async def _publish(
        self, online: OnlineUser, publication: Publication
    ) -> asyncio.Future[int | None]:
        self._own.add(publication.id)
        waiting = await self.history.publish(publication)
        online.traffic.record(
            "basic.publish", f"feed.{FEED_NAME}", f"history message-id={publication.id}"
        )
        self.drawer.schedule()
        return waiting

    async def _await_position(
        self, online: OnlineUser, publication_id: str, waiting: asyncio.Future[int | None]
    ) -> int:
        try:
            position = await asyncio.shield(waiting)
        finally:
            if waiting.done():
                self._own.discard(publication_id)
        if position is None:  # it was applied before, or refused by CHR2
            position = await self.read(self._reader.find_position, publication_id)
        if position is None:
            raise RefusedError("id", "the message was changed by someone else meanwhile")
        return position

    def _handle_applied(self, applied: Sequence[Applied]) -> None:
        """Follow the read model: remember, and hand over to the task that publishes to rooms."""
        self.directory.apply(applied)
        self.courier.remember(applied)
        foreign = [each for each in applied if each.publication_id not in self._own]
        self.courier.offer_to_members(foreign, self.online)
        for each in applied:
            if each.publication_id in self._own:
                self._own.discard(each.publication_id)
                self._routing.put_nowait(each)

    async def route(self) -> None:
        """Publish what was applied to rooms and users, in order, until cancelled."""
        while True:
            applied = await self._routing.get()
            author = self.online.get(applied.message.author.id)
            traffic = None if author is None else author.traffic
            message = to_room_message(applied)
            body = encode_text(applied.message.text)
            for exchange, key in route_of(applied):
                await self._link.publish(exchange, key, message, body, traffic)
            self.drawer.schedule()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    async def mark_read(self, online: OnlineUser, conversation: str, position: int) -> None:
        """Raise the read position of a user, and tell all devices."""
        key, user_id = from_wire(conversation, online.user.id), online.user.id
        self.directory.require_member(user_id, key)
        position = max(0, min(position, self.directory.last_position(key)))
        read_position, unread, last_position = await self._write(
            self._writer.mark_read, user_id, key, position
        )
        frame = encode_frame(
            {
                "type": "read",
                "conversation": conversation,
                "position": read_position,
                "unread": unread,
                "last_position": last_position,
            }
        )
        for device in online.devices:
            device.push(frame)

    def announce_typing(self, online: OnlineUser, conversation: str) -> None:
        key = from_wire(conversation, online.user.id)
        self.directory.require_member(online.user.id, key)
        self.broadcasts.announce_typing(online.user.id, key)

    # ── pages ─────────────────────────────────────────────────────────────────────────────────────────────

    async def resume(
        self, online: OnlineUser, device: Device, positions: dict[str, int] | None
    ) -> None:
        """Tell a device of its conversations, and give it what it has missed of those that it names."""
        await self.welcome.resume(online, device, positions or {}, self.broker_state)

    @property
    def reader(self) -> Reader:
        return self._reader


def to_room_message(applied: Applied) -> Message[str]:
    """Return a publication as it goes to the queues of users: with its author, by the enricher."""
    stored = applied.message
    message = Message(
        body=stored.text,
        headers={"kind": applied.kind.value, POSITION_HEADER: applied.position},
        content_type=CONTENT_TYPE,
        correlation_id=stored.thread or stored.id,
        message_id=stored.id,
    )
    return NameEnricher(stored.author).apply(message)


def _now_ms() -> int:
    return round(time.time() * 1000)
