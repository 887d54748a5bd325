"""Users and conversations in memory: what every frame needs. The read model stores the same."""

from __future__ import annotations

from collections.abc import Sequence

from .conversation import PRIVATE_PREFIX, participants, room_of
from .messages import Applied, ChatUser
from .names import RefusedError
from .read_model import ReadModelSnapshot


class Directory:
    """All users, the conversations of each, and the last position of each conversation."""

    def __init__(self, snapshot: ReadModelSnapshot) -> None:
        self._users = {user.id: user for user in snapshot.users}
        self._positions = dict(snapshot.conversations)
        self._conversations: dict[str, dict[str, None]] = {}
        self._members: dict[str, dict[str, None]] = {}
        for user_id, key in snapshot.members:
            self.add_member(user_id, key)

    @property
    def user_count(self) -> int:
        return len(self._users)

    def add_user(self, user: ChatUser) -> None:
        self._users[user.id] = user

    def find_user(self, user_id: str) -> ChatUser | None:
        return self._users.get(user_id)

    def require_user(self, user_id: str) -> ChatUser:
        user = self._users.get(user_id)
        if user is None:
            raise RefusedError("user", "there is no such user")
        return user

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────────

    def exists(self, key: str) -> bool:
        return key in self._positions

    def add_conversation(self, key: str) -> None:
        self._positions.setdefault(key, 0)

    def add_member(self, user_id: str, key: str) -> None:
        self.add_conversation(key)
        self._conversations.setdefault(user_id, {})[key] = None
        self._members.setdefault(key, {})[user_id] = None

    def remove_member(self, user_id: str, key: str) -> None:
        self._conversations.get(user_id, {}).pop(key, None)
        self._members.get(key, {}).pop(user_id, None)

    def is_member(self, user_id: str, key: str) -> bool:
        return user_id in self._members.get(key, ())

    def require_member(self, user_id: str, key: str) -> None:
        if not self.is_member(user_id, key):
            raise RefusedError("conversation", "you are not a member of this conversation")

    def conversations_of(self, user_id: str) -> list[str]:
        return list(self._conversations.get(user_id, ()))

    def rooms_of(self, user_id: str) -> list[str]:
        rooms = map(room_of, self._conversations.get(user_id, ()))
        return [room for room in rooms if room is not None]

    def members_of(self, key: str) -> list[str]:
        return list(self._members.get(key, ()))

    def member_count(self, key: str) -> int:
        return len(self._members.get(key, ()))

    def rooms(self) -> list[tuple[str, str]]:
        """Return key and name of each room."""
        return [(key, room) for key in self._positions if (room := room_of(key)) is not None]

    @property
    def room_count(self) -> int:
        return sum(room_of(key) is not None for key in self._positions)

    def last_position(self, key: str) -> int:
        return self._positions.get(key, 0)

    def apply(self, applied: Sequence[Applied]) -> None:
        """Follow the read model."""
        for each in applied:
            key = each.message.conversation
            self._positions[key] = each.position
            if key.startswith(PRIVATE_PREFIX):
                for user_id in set(participants(key)):
                    self.add_member(user_id, key)
