"""Which actors here are bound to actors elsewhere, and what follows when a node falls silent or comes back.

Nothing here sends or tells the time: the node asks, and does what it is told.

Signals travel as they are, so a watched actor's death is confirmed by its own node: Down with the reason.
What no signal can tell is that a node is gone. Then this does: Down whose reason is an Unreachable, and
nobody knows more.

V1  A bond is entered by the signal that makes it, on both sides, and ends by the signal that ends it.
V2  When a node has been silent for too long, each actor that is bound to one of its own is told, once; then the
    bonds are gone.
V3  When a node comes back before that, or in another life, the bonds that were made here are made there again,
    with the actors of before (V6): one that is not there any more is confirmed dead by that.
V4  There are no more bonds made by others than the limit.
V5  Who was bound by its name alone is called so in what follows from the bond: those who made it know no other.
V6  A bond is with one incarnation of an actor. If it was made by name, the actor's node says which uid has the
    name, and the bond is made again with that one only. If the first word of another life of the node comes
    before that, the signal reached the last life or this one. A *probe* tells: the same signal, for a uid that
    no actor has. Its answer says that the actor is dead, and comes after the uid if this life got the signal.
    If the signal was sent twice by then, the actor is dead.
V7  A bond has a token, which is in all that follows from it. So the end of an earlier bond of the same two
    actors, told late or twice, does not end the present one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from recado.actors.errors import ActorError, NodeUnreachableError, NoSuchActorError
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import LimitExceededError
from recado.actors.supervision.signals import (
    CellSignal,
    ChildFailed,
    Down,
    Ended,
    Exit,
    Failed,
    Link,
    Stop,
    Tie,
    Unlink,
    Untie,
    Unwatch,
    Watch,
)

Ref: TypeAlias = ActorRef[Any]


class RelationKind(Enum):
    WATCHES = auto()  # the actor here watches the one there
    WATCHED_BY = auto()
    SUPERVISES = auto()
    SUPERVISED_BY = auto()
    TIED = auto()


_REMOTE_KINDS = (RelationKind.WATCHED_BY, RelationKind.SUPERVISED_BY)
# Those made here, by the signals that make them; a tie is made by either side.
_SIGNAL_TYPES: Final[dict[RelationKind, type[Watch | Link | Tie]]] = {
    RelationKind.WATCHES: Watch,
    RelationKind.SUPERVISES: Link,
    RelationKind.TIED: Tie,
}
NO_ACTOR_ID: Final = 2**63 - 1  # larger than those of actors


class Relation(NamedTuple):
    kind: RelationKind
    local: Ref
    remote: Ref


class RelationState(NamedTuple):
    """What is said of a bond in signals, beside the two actors."""

    token: int = 0
    """Given by the node that made the bond (V7)."""
    alias: str = ""
    """How the other node calls the actor here, if not by its full address (V5)."""
    uid: int = 0
    """Of the actor there, if it was bound by name and its node has said which one that is (V6)."""
    probe_token: int = 0
    """The token of the last probe, if there was one (V6)."""
    is_repeated: bool = False
    """Whether the signal was sent again before the uid was known (V6)."""

    def is_ended_by(self, token: int) -> bool:
        """Whether the end that was told with this token is that of the bond. Nodes that give none mean any."""
        if token and token == self.probe_token:
            return not self.uid
        return token in (0, self.token)


NO_STATE: Final = RelationState()


class OrphanedChild(NamedTuple):
    """The supervisor of an actor here is gone, or only what the two said to each other is (`supervisor_gone` is False).

    Nobody will decide about a failure that is not decided yet.
    """

    child: Ref
    supervisor: Ref
    reason: NodeUnreachableError
    supervisor_gone: bool = True


class SignalDue(NamedTuple):
    """A signal for an actor, here or there."""

    ref: Ref
    signal: CellSignal


Effect: TypeAlias = SignalDue | OrphanedChild


class RelationTable:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._remote_count = 0
        self._last_token = 0  # the last one
        self.by_node: dict[
            str, dict[Relation, RelationState]
        ] = {}  # by node; one without bonds is not in it

    def __len__(self) -> int:
        return sum(map(len, self.by_node.values()))

    # ── what passes by ────────────────────────────────────────────────────────────────────────────────────

    def record_sent(self, remote: Ref, signal: CellSignal) -> RelationState:
        """What has to be said with it."""
        match signal:
            case Watch(local):
                return self._establish(Relation(RelationKind.WATCHES, local, remote))
            case Unwatch(local):
                return self._remove(Relation(RelationKind.WATCHES, local, remote))
            case Down(local, _):
                return self._remove(Relation(RelationKind.WATCHED_BY, local, remote))
            case Link(local):
                return self._establish(Relation(RelationKind.SUPERVISES, local, remote))
            case Unlink(local):
                return self._remove(Relation(RelationKind.SUPERVISES, local, remote))
            case Failed(local, _):
                return self._state(Relation(RelationKind.SUPERVISED_BY, local, remote)) or NO_STATE
            case Ended(local, _):
                return self._remove(Relation(RelationKind.SUPERVISED_BY, local, remote))
            case Tie(local):
                return self._establish(Relation(RelationKind.TIED, local, remote))
            case Untie(local) | Exit(local, _):
                return self._remove(Relation(RelationKind.TIED, local, remote))
            case _:
                return NO_STATE

    def undo_sent(self, remote: Ref, signal: CellSignal) -> None:
        """It was sent, and refused."""
        match signal:
            case Watch(local):
                self._remove(Relation(RelationKind.WATCHES, local, remote))
            case Link(local):
                self._remove(Relation(RelationKind.SUPERVISES, local, remote))
            case Tie(local):
                self._remove(Relation(RelationKind.TIED, local, remote))
            case _:
                pass

    def record_received(
        self, local: Ref, signal: CellSignal, alias: str = "", token: int = 0
    ) -> bool:
        """`alias` is how they call the actor here, if not by its own address. False: it is about an earlier
        bond, and the actor must not hear of it (V7). Raises Full."""
        match signal:
            case Watch(remote):
                self._add(
                    Relation(RelationKind.WATCHED_BY, local, remote), RelationState(token, alias)
                )
            case Unwatch(remote):
                self._remove(Relation(RelationKind.WATCHED_BY, local, remote))
            case Down(remote, _):
                return self._end_by_peer(Relation(RelationKind.WATCHES, local, remote), token)
            case Link(remote):
                self._add(
                    Relation(RelationKind.SUPERVISED_BY, local, remote), RelationState(token, alias)
                )
            case Unlink(remote):
                self._remove(Relation(RelationKind.SUPERVISED_BY, local, remote))
            case Ended(remote, _):
                return self._end_by_peer(Relation(RelationKind.SUPERVISES, local, remote), token)
            case Tie(remote):
                relation = Relation(RelationKind.TIED, local, remote)
                if (
                    self._state(relation) is None
                ):  # or it is ours, and the other side makes it again
                    self._add(relation, RelationState(token, alias))
            case Untie(remote) | Exit(remote, _):
                relation = Relation(RelationKind.TIED, local, remote)
                state = self._state(relation) or NO_STATE
                if token and token == state.probe_token and state.uid:
                    return False
                self._remove(relation)
            case _:
                pass
        return True

    def set_uid(self, local: Ref, named: Ref, uid: int, token: int) -> None:
        """The actor that a bond of ours calls by name has this uid (V6)."""
        for kind in _SIGNAL_TYPES:
            relation = Relation(kind, local, named)
            state = self._state(relation)
            if state is not None and state.token == token and not state.uid:
                self.by_node[named.address.node][relation] = state._replace(uid=uid)

    def add_supervised_child(self, child: Ref, supervisor: Ref) -> None:
        """An actor was started here for a supervisor there. Raises Full."""
        self._add(Relation(RelationKind.SUPERVISED_BY, child, supervisor))

    def _establish(self, relation: Relation) -> RelationState:
        """Here. One that is there already stays as it is: it is with the same actor (V6)."""
        state = self._state(relation)
        if state is None:
            self._last_token += 1
            state = RelationState(self._last_token)
            self._add(relation, state)
        elif _is_by_name(relation, state):
            if state.probe_token:
                return state._replace(token=state.probe_token, uid=NO_ACTOR_ID)
            self._add(relation, state._replace(is_repeated=True))
        return state

    def _add(self, relation: Relation, state: RelationState = NO_STATE) -> None:
        relations = self.by_node.setdefault(relation.remote.address.node, {})
        if relation not in relations and relation.kind in _REMOTE_KINDS:
            if self._remote_count >= self._limit:
                self._remove_if_empty(relation.remote.address.node)
                raise LimitExceededError(f"{self._limit} bonds were made by other nodes already")
            self._remote_count += 1
        relations[relation] = state

    def _state(self, relation: Relation) -> RelationState | None:
        return self.by_node.get(relation.remote.address.node, {}).get(relation)

    def _end_by_peer(self, relation: Relation, token: int) -> bool:
        """They say that it has ended: whether it was this one."""
        state = self._state(relation)
        if state is not None and not state.is_ended_by(token):
            return False
        self._remove(relation)
        return True

    def _remove(self, relation: Relation) -> RelationState:
        node = relation.remote.address.node
        relations = self.by_node.get(node, {})
        state = relations.pop(relation, None)
        if state is not None:
            self._remote_count -= relation.kind in _REMOTE_KINDS
        self._remove_if_empty(node)
        return state or NO_STATE

    def _remove_if_empty(self, node: str) -> None:
        if not self.by_node.get(node, True):
            del self.by_node[node]

    # ── silence and return ────────────────────────────────────────────────────────────────────────────────

    def node_unreachable(self, node: str, reason_text: str) -> list[Effect]:
        """Nobody knows what is there any more."""
        relations = self.by_node.pop(node, {})
        self._remote_count -= sum(relation.kind in _REMOTE_KINDS for relation in relations)
        effects: list[Effect] = []
        for kind, local, remote in relations:
            reason = NodeUnreachableError(f"{remote} is out of reach: {reason_text}")
            match kind:
                case RelationKind.WATCHES | RelationKind.SUPERVISES | RelationKind.TIED:
                    effects += _remote_actor_gone(kind, local, remote, reason)
                case RelationKind.WATCHED_BY:
                    effects.append(SignalDue(local, Unwatch(remote)))
                case RelationKind.SUPERVISED_BY:
                    effects.append(OrphanedChild(local, remote, reason))
        return effects

    def node_returned(self, node: str, *, restarted: bool) -> list[Effect]:
        """It speaks again; `reborn` if it is another life, in which nobody of the last one is left."""
        relations = self.by_node.get(node, {})
        effects: list[Effect] = []
        for relation, state in list(relations.items()):
            match relation.kind:
                case RelationKind.WATCHES | RelationKind.SUPERVISES | RelationKind.TIED:
                    if restarted and _is_by_name(relation, state):
                        if state.is_repeated:
                            self._remove(relation)
                            gone = NoSuchActorError(
                                f"{relation.remote} is gone: its node began another life"
                            )
                            effects += _remote_actor_gone(*relation, gone)
                            continue
                        self._last_token += 1
                        self._add(relation, state._replace(probe_token=self._last_token))
                    effects.append(
                        SignalDue(relation.remote, _SIGNAL_TYPES[relation.kind](relation.local))
                    )
                case RelationKind.WATCHED_BY | RelationKind.SUPERVISED_BY if restarted:
                    self._remove(relation)
                    effects.append(_maker_gone(relation))
                case RelationKind.SUPERVISED_BY:
                    reason = NodeUnreachableError(
                        f"{relation.remote} was out of reach for a moment"
                    )
                    effects.append(
                        OrphanedChild(
                            relation.local, relation.remote, reason, supervisor_gone=False
                        )
                    )
                case RelationKind.WATCHED_BY:
                    pass
        return effects


def _is_by_name(relation: Relation, state: RelationState) -> bool:
    """Whether it is not known which actor it is with (V6)."""
    return not (relation.remote.address.uid or state.uid)


def _maker_gone(relation: Relation) -> Effect:
    """Who made it there is gone."""
    if relation.kind is RelationKind.WATCHED_BY:
        return SignalDue(relation.local, Unwatch(relation.remote))
    reason = NodeUnreachableError(f"{relation.remote} is gone: its node began another life")
    return OrphanedChild(relation.local, relation.remote, reason)


def _remote_actor_gone(
    kind: RelationKind, local: Ref, remote: Ref, reason: ActorError
) -> list[Effect]:
    """What an actor here is told that has bound itself to one that is gone."""
    match kind:
        case RelationKind.WATCHES:
            return [SignalDue(local, Down(remote, reason))]
        case RelationKind.SUPERVISES:
            return [
                SignalDue(local, Ended(remote, reason)),
                SignalDue(local, ChildFailed(remote, reason)),
            ]
        case _:
            return [SignalDue(local, Exit(remote, reason))]


def signal_undelivered(remote: Ref, signal: CellSignal, reason_text: str) -> list[Effect]:
    """A signal certainly did not arrive: what its sender would hear if the actor there were gone."""
    reason = NodeUnreachableError(f"{remote} is out of reach: {reason_text}")
    match signal:
        case Watch(local):
            return _remote_actor_gone(RelationKind.WATCHES, local, remote, reason)
        case Link(local):
            return _remote_actor_gone(RelationKind.SUPERVISES, local, remote, reason)
        case Tie(local):
            return _remote_actor_gone(RelationKind.TIED, local, remote, reason)
        case Failed(child, failure):
            return [SignalDue(child, Stop(failure))]
        case _:
            return []
