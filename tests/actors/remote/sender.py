"""Another node of which only frames exist, with sequence numbers chosen by the test."""

from __future__ import annotations

from typing import Any

import msgspec

from recado.actors import ActorSystem, Message
from recado.actors.remote.node import Node
from recado.actors.remote.transport import Settle
from recado.actors.remote.wire.envelope_pb2 import MSGPACK, Envelope, Payload
from recado.actors.remote.wire.frame import FrameAuthenticator, FrameSigner
from recado.actors.serialization.class_registry import manifest_of

INCARNATION = b"another node, 16"
NAME = "sender"


class Sender:
    """It is its own link, and records the answers."""

    peer = NAME
    is_durable = True
    is_up = True

    def __init__(self) -> None:
        self.answered: list[bytes] = []
        self._sealer = FrameSigner(FrameAuthenticator(), INCARNATION)

    def give(
        self,
        system: ActorSystem,
        target: str,
        message: Message[Any],
        number: int,
        settle: Settle | None = None,
        *,
        asks: bool = False,
    ) -> None:
        """For the actor of this name, as the frame of this number."""
        self._sealer.sequence = number - 1
        envelope = Envelope(
            id=number,
            target=f"recado-actor://{system.name}/{target}",
            node=NAME,
            client=NAME,
            one_way=not asks,
            message=Payload(
                format_id=MSGPACK,
                manifest=manifest_of(type(message)),
                body=msgspec.msgpack.encode(message),
            ),
        )
        frame = self._sealer.sign(envelope.SerializeToString())
        Node.of(system).frame_received(self, frame, settle)

    def post(self, frame: bytes) -> None:
        self.answered.append(frame)

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...
