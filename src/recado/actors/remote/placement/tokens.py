"""Actors that were started here because another node wanted them, which may not have heard that they are there.

    Create, Move (token) ────────►   start it, answer
              Abandon(token) ────►   stop it, if it is there, or as soon as it is

UH1  What was abandoned is stopped, whether it had been started by then or not.
UH2  No more tokens are remembered than TOKENS_MOST, of either kind.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from recado.actors.ref import ActorRef
from recado.actors.remote.errors import RemoteError
from recado.actors.remote.peer import Peer
from recado.actors.remote.wire.controls import AbandonActor

if TYPE_CHECKING:
    from recado.actors.remote.node import Node

log = logging.getLogger("recado.actors")

MAX_TOKENS: Final = 1000


class PlacementTokens:
    def __init__(self) -> None:
        self._started: OrderedDict[tuple[str, str], ActorRef[Any]] = OrderedDict()
        self._abandoned: OrderedDict[tuple[str, str], None] = OrderedDict()

    def record_started(self, peer: Peer, token: str, ref: ActorRef[Any]) -> None:
        key = peer.name, token
        if key in self._abandoned:
            del self._abandoned[key]
            ref.stop()
            return
        self._started[key] = ref
        if len(self._started) > MAX_TOKENS:
            self._started.popitem(last=False)

    def abandon(self, peer: Peer, token: str) -> None:
        key = peer.name, token
        ref = self._started.pop(key, None)
        if ref is not None:
            ref.stop()
            return
        self._abandoned[key] = None
        if len(self._abandoned) > MAX_TOKENS:
            self._abandoned.popitem(last=False)


def abandon_remote(node: Node, peer_name: str, token: str) -> None:
    """Perhaps it was started there, and only the word of it was lost."""
    try:
        node.outbound.send_control(node.peer_table.peer(peer_name), AbandonActor(token))
    except RemoteError as error:
        log.warning("%s cannot be told that an actor is not wanted any more: %s", peer_name, error)
