"""Relations between local and remote actors, and the consequences when a node fails or returns.

A relation is a watch, a supervision or a tie. Nothing here sends, or reads the clock: the remote watcher calls
these methods and applies the effects that they return.

Signals travel unchanged, so the death of a watched actor is confirmed by its own node, by a Down with the
reason. No signal can report that a node has failed. Then the table returns Down signals with
NodeUnreachableError as their reason: whether the actors are alive is not known.

REL1  A relation is entered by the signal that creates it, on both nodes, and removed by the signal that ends
      it.
REL2  When a node becomes unreachable, each actor with a relation to one of its actors is notified, once; then
      the relations are removed.
REL3  When a node returns before that, or as another incarnation, the relations created here are created there
      again, with the same actors (REL6). If an actor no longer exists, the node answers that it is dead.
REL4  The number of relations created by other nodes is limited.
REL5  An actor to which a relation was created by its name is referred to by that name (its *alias*) in all
      signals of the relation, because the creator knows no other.
REL6  A relation is with one actor (uid), not with a name. If it was created by name, the node of the actor
      reports which uid has the name, and the relation is renewed with that uid only.
      If the node restarts before it has reported the uid, the signal may have reached the earlier incarnation,
      whose actors are gone, or the present one. To find out, we send a *probe*: the same signal with a token of
      its own and a uid that no actor has, so the node answers that this actor is dead. Signals arrive in order,
      so if the present incarnation received the original signal, it reports the uid before it answers the
      probe, and that answer is ignored. Otherwise the answer ends the relation. If the original signal was sent
      twice before the restart (`is_repeated`), no probe is sent, and the actor is reported dead.
REL7  A relation has a token, which is in all its signals. So the end of an earlier relation between the same
      two actors, reported late or twice, does not end the present one.
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
    """The role of the local actor."""

    WATCHES = auto()
    WATCHED_BY = auto()
    SUPERVISES = auto()
    SUPERVISED_BY = auto()
    TIED = auto()


_REMOTE_KINDS = (RelationKind.WATCHED_BY, RelationKind.SUPERVISED_BY)
"""Relations that the remote node creates; a tie is created by either."""
_SIGNAL_TYPES: Final[dict[RelationKind, type[Watch | Link | Tie]]] = {
    RelationKind.WATCHES: Watch,
    RelationKind.SUPERVISES: Link,
    RelationKind.TIED: Tie,
}
"""The signals by which the local node creates relations."""
NO_ACTOR_ID: Final = 2**63 - 1  # a uid above those of actors, for probes (REL6)


class Relation(NamedTuple):
    kind: RelationKind
    local: Ref
    remote: Ref


class RelationState(NamedTuple):
    """The data of a relation besides its two actors; token, alias and uid are sent in its signals."""

    token: int = 0
    """Assigned by the node that created the relation (REL7)."""
    alias: str = ""
    """How the other node refers to the local actor, if not by its full address (REL5)."""
    uid: int = 0
    """Of the remote actor, if it was addressed by name and its node has reported the uid (REL6)."""
    probe_token: int = 0
    """The token of the last probe, if there was one (REL6)."""
    is_repeated: bool = False
    """Whether the signal was sent again before the uid was known (REL6)."""

    def is_ended_by(self, token: int) -> bool:
        """Whether a report with this token ends this relation. A report without a token (0) always does."""
        if token and token == self.probe_token:
            return not self.uid
        return token in (0, self.token)


NO_STATE: Final = RelationState()


class OrphanedChild(NamedTuple):
    """Effect: a local actor cannot expect a decision of its remote supervisor about a pending failure.

    The supervisor is gone, or only signals between the two were lost (`supervisor_gone` is False).
    """

    child: Ref
    supervisor: Ref
    reason: NodeUnreachableError
    supervisor_gone: bool = True


class SignalDue(NamedTuple):
    """Effect: a signal to send to a local or remote actor."""

    ref: Ref
    signal: CellSignal


Effect: TypeAlias = SignalDue | OrphanedChild


class RelationTable:
    def __init__(self, limit: int) -> None:
        """`limit` is the number of relations that other nodes may create (REL4)."""
        self._limit = limit
        self._remote_count = 0  # relations created by other nodes
        self._last_token = 0
        self.by_node: dict[str, dict[Relation, RelationState]] = {}
        """By the remote node; a node without relations is not in it."""

    def __len__(self) -> int:
        return sum(map(len, self.by_node.values()))

    # ── signals sent and received ─────────────────────────────────────────────────────────────────────────

    def record_sent(self, remote: Ref, signal: CellSignal) -> RelationState:
        """Record a signal to a remote actor. Returns the state to send with it."""
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
                relation = Relation(RelationKind.SUPERVISED_BY, local, remote)
                return self._state(relation) or NO_STATE
            case Ended(local, _):
                return self._remove(Relation(RelationKind.SUPERVISED_BY, local, remote))
            case Tie(local):
                return self._establish(Relation(RelationKind.TIED, local, remote))
            case Untie(local) | Exit(local, _):
                return self._remove(Relation(RelationKind.TIED, local, remote))
            case _:
                return NO_STATE

    def undo_sent(self, remote: Ref, signal: CellSignal) -> None:
        """Remove the relation of a signal that was sent and refused."""
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
        """Record a signal from a remote actor; `alias` is how it refers to the local one, if by name.

        Returns False if the signal is about an earlier relation, and must not be delivered (REL7). Raises
        LimitExceededError.
        """
        match signal:
            case Watch(remote):
                state = RelationState(token, alias)
                self._add(Relation(RelationKind.WATCHED_BY, local, remote), state)
            case Unwatch(remote):
                self._remove(Relation(RelationKind.WATCHED_BY, local, remote))
            case Down(remote, _):
                return self._end_by_peer(Relation(RelationKind.WATCHES, local, remote), token)
            case Link(remote):
                state = RelationState(token, alias)
                self._add(Relation(RelationKind.SUPERVISED_BY, local, remote), state)
            case Unlink(remote):
                self._remove(Relation(RelationKind.SUPERVISED_BY, local, remote))
            case Ended(remote, _):
                return self._end_by_peer(Relation(RelationKind.SUPERVISES, local, remote), token)
            case Tie(remote):
                relation = Relation(RelationKind.TIED, local, remote)
                if self._state(relation) is None:  # otherwise it is ours, and the peer renews it
                    self._add(relation, RelationState(token, alias))
            case Untie(remote) | Exit(remote, _):
                relation = Relation(RelationKind.TIED, local, remote)
                state = self._state(relation) or NO_STATE
                # The answer to a probe does not end a relation whose uid is known (REL6). Any other end of a
                # tie does, whichever of the two nodes has assigned the token.
                if token and token == state.probe_token and state.uid:
                    return False
                self._remove(relation)
            case _:
                pass
        return True

    def set_uid(self, local: Ref, named: Ref, uid: int, token: int) -> None:
        """Set the uid of a remote actor to which a relation was created by name (REL6)."""
        for kind in _SIGNAL_TYPES:
            relation = Relation(kind, local, named)
            state = self._state(relation)
            if state is not None and state.token == token and not state.uid:
                self.by_node[named.address.node][relation] = state._replace(uid=uid)

    def add_supervised_child(self, child: Ref, supervisor: Ref) -> None:
        """Record an actor that was started here for a remote supervisor. Raises LimitExceededError."""
        self._add(Relation(RelationKind.SUPERVISED_BY, child, supervisor))

    def _establish(self, relation: Relation) -> RelationState:
        """Create a relation from here. An existing one stays: it is with the same actor (REL6)."""
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
                raise LimitExceededError(
                    f"other nodes have {self._limit} watches and links on actors here",
                    "Raise max_remote_watches",
                )
            self._remote_count += 1
        relations[relation] = state

    def _state(self, relation: Relation) -> RelationState | None:
        return self.by_node.get(relation.remote.address.node, {}).get(relation)

    def _end_by_peer(self, relation: Relation, token: int) -> bool:
        """Remove a relation that the peer reports as ended. Returns False if the token is of another one."""
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

    # ── nodes that fail and return ────────────────────────────────────────────────────────────────────────

    def node_unreachable(self, node: str, reason_text: str) -> list[Effect]:
        """Remove all relations with a node (REL2)."""
        relations = self.by_node.pop(node, {})
        self._remote_count -= sum(relation.kind in _REMOTE_KINDS for relation in relations)
        effects: list[Effect] = []
        for kind, local, remote in relations:
            reason = NodeUnreachableError(f"{remote} is unreachable: {reason_text}")
            match kind:
                case RelationKind.WATCHES | RelationKind.SUPERVISES | RelationKind.TIED:
                    effects += _remote_actor_gone(kind, local, remote, reason)
                case RelationKind.WATCHED_BY:
                    effects.append(SignalDue(local, Unwatch(remote)))
                case RelationKind.SUPERVISED_BY:
                    effects.append(OrphanedChild(local, remote, reason))
        return effects

    def node_returned(self, node: str, *, restarted: bool) -> list[Effect]:
        """Renew the relations with a node that is heard again (REL3).

        `restarted` if it is another incarnation, which has no actors of the last one.
        """
        effects: list[Effect] = []
        for relation, state in list(self.by_node.get(node, {}).items()):
            match relation.kind:
                case RelationKind.WATCHES | RelationKind.SUPERVISES | RelationKind.TIED:
                    if restarted and _is_by_name(relation, state):
                        if state.is_repeated:
                            self._remove(relation)
                            effects += _remote_actor_gone(
                                *relation,
                                NoSuchActorError(f"{relation.remote} is gone: its node restarted"),
                            )
                            continue
                        self._last_token += 1
                        self._add(relation, state._replace(probe_token=self._last_token))
                    signal = _SIGNAL_TYPES[relation.kind](relation.local)
                    effects.append(SignalDue(relation.remote, signal))
                case RelationKind.WATCHED_BY | RelationKind.SUPERVISED_BY if restarted:
                    self._remove(relation)
                    effects.append(_creator_gone(relation))
                case RelationKind.SUPERVISED_BY:
                    reason = NodeUnreachableError(f"{relation.remote} was unreachable for a moment")
                    effects.append(
                        OrphanedChild(
                            relation.local, relation.remote, reason, supervisor_gone=False
                        )
                    )
                case RelationKind.WATCHED_BY:
                    pass
        return effects


def _is_by_name(relation: Relation, state: RelationState) -> bool:
    """Whether the uid of the remote actor is not known yet (REL6)."""
    return not (relation.remote.address.uid or state.uid)


def _creator_gone(relation: Relation) -> Effect:
    """Return the effect of the end of a remote watcher or supervisor."""
    if relation.kind is RelationKind.WATCHED_BY:
        return SignalDue(relation.local, Unwatch(relation.remote))
    reason = NodeUnreachableError(f"{relation.remote} is gone: its node restarted")
    return OrphanedChild(relation.local, relation.remote, reason)


def _remote_actor_gone(
    kind: RelationKind, local: Ref, remote: Ref, reason: ActorError
) -> list[Effect]:
    """Return the signals to a local actor whose watched, supervised or tied remote actor is gone."""
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
    """Return the effects of a signal that certainly did not arrive: those of an absent actor."""
    reason = NodeUnreachableError(f"{remote} is unreachable: {reason_text}")
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
