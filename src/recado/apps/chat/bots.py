"""The users of the demo: they talk to each other, and answer people.

A bot is a user like any other: it has a queue on the broker, gets messages from it, and publishes as browsers do. Only
the limit of messages per second does not apply to it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import uuid
from collections.abc import Awaitable
from typing import Final

from recado.client import ClientError
from recado.feeds.errors import FeedError

from .chat import Chat
from .conversation import ROOM_PREFIX, room_key, to_wire
from .device import Device, OnlineUser
from .messages import ChatUser, Kind, StoredMessage
from .names import RefusedError
from .presentation import Rendered
from .read_model import Missed
from .talk import ANSWERS, BOT_NAMES, DIALOGUES, GREETING, LOBBY, PRIVATE_ANSWERS, Dialogue

SPEAKERS_COUNT: Final = 3
PAUSE_MIN_S: Final = 2.0
PAUSE_MAX_S: Final = 7.0
BETWEEN_DIALOGUES_S: Final = 10.0
TYPING_S: Final = 1.2
WAITING_MAX_COUNT: Final = 20
"""Messages of people that a bot has not answered yet; it ignores further ones."""

log = logging.getLogger("recado.chat")


class Bot(Device):
    """One user of the demo."""

    def __init__(self, chat: Chat, name: str) -> None:
        super().__init__()
        identity = hashlib.blake2b(f"bot/{name}".encode(), digest_size=16).hexdigest()
        self.user = ChatUser(identity, name)
        self._chat = chat
        self.online: OnlineUser
        self.heard: asyncio.Queue[StoredMessage] = asyncio.Queue(WAITING_MAX_COUNT)

    async def arrive(self) -> None:
        await self._chat.ensure_user(self.user)
        self.online = self._chat.connect(self.user, self, is_limited=False)
        for room in DIALOGUES:
            await self._chat.join(self.online, self, room)
        for key in self._chat.directory.conversations_of(self.user.id):
            self.seen[key] = self._chat.directory.last_position(key)
        self.is_ready = True

    async def say(self, conversation: str, text: str, reply_to: str | None = None) -> str:
        """Publish a message and return its id."""
        message_id, _ = await self._chat.send(
            self.online, uuid.uuid4().hex, conversation, text, reply_to
        )
        return message_id

    async def type_for(self, conversation: str, seconds: float) -> None:
        self._chat.announce_typing(self.online, conversation)
        await asyncio.sleep(seconds)

    # ── as a device ───────────────────────────────────────────────────────────────────────────────────────

    def push(self, frame: bytes) -> None:
        """Frames are for browsers: a bot looks at messages only."""

    def push_publication(self, rendered: Rendered, user_id: str) -> None:
        if rendered.applied.kind is Kind.MESSAGE:
            self._hear(rendered.applied.message)

    def push_missed(self, missed: Missed, conversation: str, user_id: str, seen: int) -> None:
        """The first private message of a person, and what was published while the broker was away."""
        for message in missed.messages:
            self._hear(message)

    def _hear(self, message: StoredMessage) -> None:
        if not self.heard.full():
            self.heard.put_nowait(message)

    async def drain(self) -> None:
        pass

    def close(self, reason: str) -> None:
        pass


class Demo:
    """Makes bots arrive, talk and answer."""

    def __init__(self, chat: Chat, *, seed: int = 1, pace: float = 1.0) -> None:
        """`pace` multiplies all pauses."""
        self._chat = chat
        self._random = random.Random(seed)
        self._pace = pace
        self.bots = [Bot(chat, name) for name in BOT_NAMES]
        self._ids = {bot.user.id for bot in self.bots}
        self._greeted: set[str] = set()

    async def prepare(self) -> None:
        """Let the bots arrive and fill each room with a first dialogue."""
        await asyncio.gather(*(bot.arrive() for bot in self.bots))
        await asyncio.gather(
            *(
                self._perform(room, dialogues[0], pace=0.0)
                for room, dialogues in DIALOGUES.items()
                if not self._chat.directory.last_position(room_key(room))
            )
        )

    async def run(self) -> None:
        """Talk until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for room in DIALOGUES:
                tasks.create_task(self._talk(room))
            for bot in self.bots:
                tasks.create_task(self._answer(bot))

    async def _talk(self, room: str) -> None:
        dialogues = DIALOGUES[room]
        index = 1
        while True:
            await asyncio.sleep(self._pace * self._random.uniform(0.2, 1.0) * BETWEEN_DIALOGUES_S)
            await self._try(self._perform(room, dialogues[index % len(dialogues)], self._pace))
            index += 1

    async def _perform(self, room: str, dialogue: Dialogue, pace: float) -> None:
        conversation = ROOM_PREFIX + room
        speakers = self._random.sample(self.bots, SPEAKERS_COUNT)
        ids: list[str] = []
        for line in dialogue:
            speaker = speakers[line.speaker]
            if pace:
                await asyncio.sleep(pace * self._random.uniform(PAUSE_MIN_S, PAUSE_MAX_S))
                await speaker.type_for(conversation, pace * TYPING_S)
            reply_to = None if line.answers is None else ids[line.answers]
            ids.append(await speaker.say(conversation, line.text, reply_to))

    async def _answer(self, bot: Bot) -> None:
        while True:
            message = await bot.heard.get()
            if message.author.id in self._ids:
                continue
            await self._try(self._answer_message(bot, message))

    async def _answer_message(self, bot: Bot, message: StoredMessage) -> None:
        conversation = to_wire(message.conversation, bot.user.id)
        person = message.author
        if conversation.startswith(ROOM_PREFIX):
            # All bots of a room hear the same message: its id chooses the one that answers.
            if self.bots[int(message.id[:8], 16) % len(self.bots)] is not bot:
                return
            is_new = conversation == ROOM_PREFIX + LOBBY and person.id not in self._greeted
            self._greeted.add(person.id)
            text = GREETING if is_new else self._random.choice(ANSWERS)
        else:
            text = self._random.choice(PRIVATE_ANSWERS)
        await bot.type_for(conversation, self._pace * TYPING_S)
        await bot.say(conversation, text.format(name=person.name), message.id)

    async def _try(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (RefusedError, ClientError, FeedError) as error:
            log.warning("a bot could not send (error=%s)", error)
