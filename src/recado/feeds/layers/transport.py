"""AMQP and UDP: the bottom of a stack. Encodes and decodes packets; the transport itself is outside the core.

TL1  No malformed packet is passed up; it is counted and dropped.
"""

from .. import wire
from ..block import MalformedDataError
from ..boundary import Broadcast, PacketArrived, PacketRoute, SendAddressed
from ..layer import DownEvent, Layer, PacketReceived, SendPacket


class TransportLayer(Layer):
    def receive(self, event: PacketArrived, now: float) -> None:
        if event.sender == self.context.member_id and event.route is PacketRoute.ADDRESSED:
            return  # our own packet to a group of members, such as all archives
        try:
            packet = wire.decode(event.packet)
        except MalformedDataError:
            self.context.malformed_count += 1
            return
        self._pass_up(PacketReceived(event.route, event.sender, packet), now)

    def down(self, event: DownEvent, now: float) -> None:
        if not isinstance(event, SendPacket):
            return
        data = wire.encode(event.packet)
        if event.to is None:
            self.context.effects.append(Broadcast(data, event.key, event.last_sequence))
        else:
            self.context.effects.append(SendAddressed(event.to, data))
