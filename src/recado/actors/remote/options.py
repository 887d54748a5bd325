"""Options of a node. The section `[actors]` of recado.toml has most of them, under the same names."""

from __future__ import annotations

from typing import Literal

import msgspec

from .wire.compression import MAX_LEVELS, CompressionScheme


class RemoteOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node communicates with others. Durations are seconds."""

    cookie: str = ""
    """The secret that the nodes share; frames are authenticated with it."""
    require_cookie: bool | None = None
    """Whether frames without the cookie are refused; None: if there is a cookie."""
    untrusted: bool = False
    """Whether other nodes are untrusted: they cannot create, move, stop or supervise actors here."""

    client_id: str = ""
    """How the nodes to which this node connects identify it; by default its name."""
    metadata: dict[str, str] = {}
    """Added to every envelope, for programs that inspect them in transit."""
    serializer: Literal["msgpack", "json"] = "msgpack"
    """The format of messages whose class does not choose one."""
    pickle: bool = False
    """Whether pickled messages are sent and accepted. A pickle can run any code."""
    compression: CompressionScheme = "none"
    compression_level: int | None = None

    max_frame_bytes: int = 1 << 20
    max_decompressed_bytes: int = 16 << 20
    """Of the body of a compressed message."""
    max_pending_asks: int = 100_000
    """Asks that wait for answers of other nodes."""
    max_remote_watches: int = 100_000
    """Watches and links of other nodes on actors here."""
    max_remote_actors: int = 10_000
    """Actors that other nodes have started here."""

    heartbeat_interval: float = 1.0
    """Between two pings to a node. Only nodes with a watch, supervision or tie to or from here are pinged."""
    failure_timeout: float = 5.0
    """Silence after which a pinged node is unreachable."""
    warm_up: float = 2.0
    """After the start, redelivered messages for actors that are not spawned yet are held for this long."""
    create_timeout: float = 5.0
    """For another node to start or take over an actor."""

    @property
    def requires_cookie(self) -> bool:
        return bool(self.cookie) if self.require_cookie is None else self.require_cookie

    def __post_init__(self) -> None:
        if self.require_cookie and not self.cookie:
            raise ValueError("require_cookie needs a cookie")
        if self.max_frame_bytes < 1024:
            raise ValueError(f"max_frame_bytes is {self.max_frame_bytes}: at least 1024")
        max_level = MAX_LEVELS[self.compression]
        if (self.compression_level or 0) > max_level:
            raise ValueError(
                f"compression_level is {self.compression_level}: at most {max_level} for {self.compression}"
            )
