"""How a node deals with others. The file of settings says the same in its section `[actors]`."""

from __future__ import annotations

from typing import Literal

import msgspec

from .wire.compression import MAX_LEVELS, CompressionScheme


class RemoteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cookie: str = ""
    require_cookie: bool | None = None  # without a word of it: if there is one
    untrusted: bool = False  # nobody outside may create, move or supervise actors here

    client_id: str = ""  # by which servers know us; the node's name if there is none
    metadata: dict[str, str] = {}  # said in every envelope, for whoever looks at them on the way
    serializer: Literal["msgpack", "json"] = "msgpack"  # for messages that have no other
    pickle: bool = False  # whether pickled messages are sent and accepted: they may run any code
    compression: CompressionScheme = "none"
    compression_level: int | None = None

    max_frame_bytes: int = 1 << 20  # bytes
    max_decompressed_bytes: int = 16 << 20  # bytes that a compressed message may have
    max_pending_asks: int = 100_000  # that wait for answers of other nodes
    max_remote_watches: int = 100_000  # of others on our actors
    max_remote_actors: int = 10_000  # actors that others have started here

    heartbeat_interval: float = (
        1.0  # seconds between signs of life to nodes whose actors are watched
    )
    failure_timeout: float = 5.0  # seconds after which a watched node is unreachable
    # Seconds after the start in which messages that a broker kept wait for actors that are not there yet.
    warm_up: float = 2.0
    create_timeout: float = 5.0  # seconds for another node to start or take over an actor

    @property
    def requires_cookie(self) -> bool:
        return bool(self.cookie) if self.require_cookie is None else self.require_cookie

    def __post_init__(self) -> None:
        if self.require_cookie and not self.cookie:
            raise ValueError("require_cookie needs a cookie")
        if self.max_frame_bytes < 1024:
            raise ValueError("frame_limit is less than 1024 bytes")
        if (self.compression_level or 0) > MAX_LEVELS[self.compression]:
            most = MAX_LEVELS[self.compression]
            raise ValueError(f"compression_level is above {most}, the most of {self.compression}")
