"""The two ends of a bridge as links of the transport port, and what they tell the node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from recado.actors.remote.faults import Gone
from recado.actors.remote.transport import Receiver

from . import naming
from .bridge import Bridge
from .handler import Arrivals, client_of


class AmqpLink:
    """To whoever reads what is published with this key."""

    lasting = True
    bridge: Bridge

    def __init__(self, peer: str, key: str) -> None:
        self.peer = peer
        self._key = key
        self.end: str | None = None

    @property
    def is_up(self) -> bool:
        return self.end is None

    def post(self, frame: bytes) -> None:
        if self.end is not None:
            raise Gone(self.end)
        self.bridge.post(self._key, frame)

    async def room(self) -> None:
        await self.bridge.room()

    def close(self) -> None:
        """The bridge goes on: it is others', too."""
        self.end = self.end or "closed"


class ClientEnd(AmqpLink):
    """The link to a node; it is its bridge's handler and watcher itself."""

    def __init__(self, node: str, receiver: Receiver, part: Callable[[ClientEnd], None]) -> None:
        super().__init__(node, naming.key_to_server(node))
        self._receiver = receiver
        self._part = part

    def close(self) -> None:
        self._finish("closed")

    def _finish(self, reason: str) -> None:
        if self.end is None:
            self.end = reason
            self._part(self)

    def received(self, messages: Arrivals) -> bool:
        if self.end is None:
            self._receiver.received_together(self, messages.frames, messages.settles)
        return False

    def rejected(self, key: str, body: bytes, reason: str) -> None:
        """Also when it is closed: by that it is decided that they do not arrive."""
        self._receiver.returned(self, body, reason)

    def lost(self, reason: str) -> None:
        if self.end is None:
            self._receiver.lost(self, reason)

    def healed(self) -> None:
        if self.end is None:
            self._receiver.healed(self)

    def gone(self, reason: str) -> None:
        if self.end is None:
            self._finish(reason)
            self._receiver.gone(self, reason)


class ServerEnd:
    """All links that clients made to this node: one for each, as long as they are remembered."""

    def __init__(
        self,
        node: str,
        receiver: Receiver,
        clients_limit: int,
        give_up: Callable[[str], None],
    ) -> None:
        """`give_up` is called when the bridge was given up, with the reason."""
        self.bridge: Bridge
        self._give_up = give_up
        self.is_closed = False
        self._node = node
        self._receiver = receiver
        self._limit = clients_limit
        self._links: OrderedDict[str, AmqpLink] = OrderedDict()
        # What a client says of itself is the same in all its messages: 0.1 µs, and 5 to read it each time.
        self._by_header: dict[bytes, AmqpLink] = {}
        self._key = naming.key_to_client(node, "")

    def received(self, messages: Arrivals) -> bool:
        if not self.is_closed:
            for those in messages.by_header():
                header = those.headers[0]
                link = self._by_header.get(header)
                if link is None or link.end is not None:
                    link = self._introduced(header)
                self._links.move_to_end(link.peer)
                self._receiver.received_together(link, those.frames, those.settles)
        return False

    def rejected(self, key: str, body: bytes, reason: str) -> None:
        self._receiver.returned(self.link_to(key.removeprefix(self._key)), body, reason)

    def _introduced(self, header: bytes) -> AmqpLink:
        link = self.link_to(client_of(header))
        if len(self._by_header) >= self._limit:
            self._by_header.clear()
        self._by_header[header] = link
        return link

    def link_to(self, client: str) -> AmqpLink:
        link = self._links.get(client)
        # The node closes one on which nonsense came. That may have been somebody else's: who it was is nowhere
        # proved, so the client is not shut out.
        if link is None or link.end is not None:
            if link is None and len(self._links) >= self._limit:
                self._forget()
            link = self._links[client] = AmqpLink(client, naming.key_to_client(self._node, client))
            link.bridge = self.bridge
        return link

    def _forget(self) -> None:
        """Who has been silent for longest; when it comes again, it gets a new link."""
        _, link = self._links.popitem(last=False)
        self._by_header = {h: each for h, each in self._by_header.items() if each is not link}
        link.close()
        self._receiver.gone(link, "too many clients")

    def lost(self, reason: str) -> None:
        for link in self._known():
            self._receiver.lost(link, reason)

    def healed(self) -> None:
        for link in self._known():
            self._receiver.healed(link)

    def gone(self, reason: str) -> None:
        for link in self._known():
            link.end = reason
            self._receiver.gone(link, reason)
        self._give_up(reason)

    def _known(self) -> list[AmqpLink]:
        return [] if self.is_closed else list(self._links.values())
