"""The two ends of a bridge as links of the transport port, and what they tell the node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from recado.actors.remote.errors import LinkClosedError
from recado.actors.remote.transport import TransportListener

from . import naming
from .bridge import Bridge
from .handler import DeliveredFrames, client_id_of


class AmqpLink:
    """To whoever reads what is published with this key."""

    is_durable = True
    bridge: Bridge

    def __init__(self, peer: str, key: str) -> None:
        self.peer = peer
        self._key = key
        self.close_reason: str | None = None

    @property
    def is_up(self) -> bool:
        return self.close_reason is None

    def post(self, frame: bytes) -> None:
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)
        self.bridge.post(self._key, frame)

    async def drain(self) -> None:
        await self.bridge.drain()

    def close(self) -> None:
        """The bridge goes on: it is others', too."""
        self.close_reason = self.close_reason or "closed"


class ClientBridgeLink(AmqpLink):
    """The link to a node; it is its bridge's handler and watcher itself."""

    def __init__(
        self, node: str, listener: TransportListener, on_closed: Callable[[ClientBridgeLink], None]
    ) -> None:
        super().__init__(node, naming.key_to_server(node))
        self._listener = listener
        self._on_closed = on_closed

    def close(self) -> None:
        self._close_with("closed")

    def _close_with(self, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = reason
            self._on_closed(self)

    def frames_delivered(self, messages: DeliveredFrames) -> bool:
        if self.close_reason is None:
            self._listener.frames_received(self, messages.frames, messages.settles)
        return False

    def frame_rejected(self, key: str, body: bytes, reason: str) -> None:
        """Also when it is closed: by that it is decided that they do not arrive."""
        self._listener.frame_returned(self, body, reason)

    def bridge_lost(self, reason: str) -> None:
        if self.close_reason is None:
            self._listener.link_lost(self, reason)

    def bridge_restored(self) -> None:
        if self.close_reason is None:
            self._listener.link_restored(self)

    def bridge_closed(self, reason: str) -> None:
        if self.close_reason is None:
            self._close_with(reason)
            self._listener.link_closed(self, reason)


class ServerBridgeLinks:
    """All links that clients made to this node: one for each, as long as they are remembered."""

    def __init__(
        self,
        node: str,
        listener: TransportListener,
        max_clients: int,
        on_given_up: Callable[[str], None],
    ) -> None:
        """`give_up` is called when the bridge was given up, with the reason."""
        self.bridge: Bridge
        self._on_given_up = on_given_up
        self.is_closed = False
        self._node = node
        self._listener = listener
        self._max_clients = max_clients
        self._links: OrderedDict[str, AmqpLink] = OrderedDict()
        # What a client says of itself is the same in all its messages: 0.1 µs, and 5 to read it each time.
        self._by_header: dict[bytes, AmqpLink] = {}
        self._key_prefix = naming.key_to_client(node, "")

    def frames_delivered(self, messages: DeliveredFrames) -> bool:
        if not self.is_closed:
            for those in messages.group_by_header():
                header = those.headers[0]
                link = self._by_header.get(header)
                if link is None or link.close_reason is not None:
                    link = self._link_for_header(header)
                self._links.move_to_end(link.peer)
                self._listener.frames_received(link, those.frames, those.settles)
        return False

    def frame_rejected(self, key: str, body: bytes, reason: str) -> None:
        self._listener.frame_returned(
            self.link_to(key.removeprefix(self._key_prefix)), body, reason
        )

    def _link_for_header(self, header: bytes) -> AmqpLink:
        link = self.link_to(client_id_of(header))
        if len(self._by_header) >= self._max_clients:
            self._by_header.clear()
        self._by_header[header] = link
        return link

    def link_to(self, client_id: str) -> AmqpLink:
        link = self._links.get(client_id)
        # The node closes one on which nonsense came. That may have been somebody else's: who it was is nowhere
        # proved, so the client is not shut out.
        if link is None or link.close_reason is not None:
            if link is None and len(self._links) >= self._max_clients:
                self._evict_oldest()
            link = self._links[client_id] = AmqpLink(
                client_id, naming.key_to_client(self._node, client_id)
            )
            link.bridge = self.bridge
        return link

    def _evict_oldest(self) -> None:
        """Who has been silent for longest; when it comes again, it gets a new link."""
        _, link = self._links.popitem(last=False)
        self._by_header = {h: each for h, each in self._by_header.items() if each is not link}
        link.close()
        self._listener.link_closed(link, "too many clients")

    def bridge_lost(self, reason: str) -> None:
        for link in self._open_links():
            self._listener.link_lost(link, reason)

    def bridge_restored(self) -> None:
        for link in self._open_links():
            self._listener.link_restored(link)

    def bridge_closed(self, reason: str) -> None:
        for link in self._open_links():
            link.close_reason = reason
            self._listener.link_closed(link, reason)
        self._on_given_up(reason)

    def _open_links(self) -> list[AmqpLink]:
        return [] if self.is_closed else list(self._links.values())
