"""Receivers of messages: the browsers of a user, and bots."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from .frames import encode_frame, show_message
from .messages import ChatUser
from .presentation import Rendered
from .read_model import Missed
from .traffic import Traffic

SENDS_PER_SECOND: Final = 5.0
SENDS_BURST_COUNT: Final = 20


class TokenBucket:
    """Limits a rate: `burst` at once, and `rate` per second after that."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated_s = 0.0

    def take(self, now_s: float) -> bool:
        """Take a token; return False if there is none."""
        elapsed_s = max(0.0, now_s - self._updated_s)
        self._tokens = min(self._burst, self._tokens + elapsed_s * self._rate)
        self._updated_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Device(ABC):
    """One browser tab, or a bot. `seen` has the last position that it got of each conversation."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.catching_up: set[str] = set()
        self.session = b""
        """The digest of the session that it was opened with; a bot has none."""
        self.is_ready = False
        """Whether it has got the list of conversations, so that it understands what follows."""
        self.shows_traffic = False

    @abstractmethod
    def push(self, frame: bytes) -> None:
        """Send a frame without waiting."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until most of what was sent is received."""

    @abstractmethod
    def close(self, reason: str) -> None:
        """End the connection."""

    def push_publication(self, rendered: Rendered, user_id: str) -> None:
        self.push(rendered.frame_for(user_id))

    def push_missed(self, missed: Missed, conversation: str, user_id: str, seen: int) -> None:
        """Send what was published in a conversation after the position `seen`."""
        content = {
            "type": "missed",
            "conversation": conversation,
            "position": missed.position,
            "messages": [show_message(each, user_id) for each in missed.messages],
            "changed": [show_message(each, user_id) for each in missed.changed],
            # A page that has seen more than there is was made by an earlier server without a data folder.
            "more": missed.more or missed.position < seen,
        }
        self.push(encode_frame(content))


class OnlineUser:
    """A user with at least one device, or who had one a moment ago."""

    def __init__(self, user: ChatUser, *, is_limited: bool) -> None:
        self.user = user
        self.devices: dict[Device, None] = {}  # in the order in which they connected
        self.traffic = Traffic()
        self.sending = asyncio.Lock()
        self.bucket = TokenBucket(SENDS_PER_SECOND, SENDS_BURST_COUNT) if is_limited else None
        self.consuming: asyncio.Task[None] | None = None
        self.has_queue = asyncio.Event()
        self.leaving: asyncio.TimerHandle | None = None
        """Ends the consumer some time after the last device has gone."""
