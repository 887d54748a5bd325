"""AMQP and UDP: the end of a stack. Packets become bytes and bytes packets; the world is beyond the boundary.

T1  Nothing malformed comes above here; it is counted and dropped.
"""

from .. import wire
from ..block import Malformed
from ..boundary import Arrived, Cast, Channel, Send
from ..layer import Falling, Heard, Layer, Say


class Transport(Layer):
    def arrived(self, event: Arrived, now: float) -> None:
        if event.sender == self.site.me and event.channel is Channel.A:
            return
        try:
            packet = wire.decode(event.packet)
        except Malformed:
            self.site.refused += 1
            return
        self._above(Heard(event.channel, event.sender, packet), now)

    def down(self, event: Falling, now: float) -> None:
        if not isinstance(event, Say):
            return
        data = wire.encode(event.packet)
        if event.to is None:
            self.site.effects.append(Cast(data, event.key, event.number))
        else:
            self.site.effects.append(Send(event.to, data))
