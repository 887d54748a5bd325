"""The drawer of the page: the operations on the broker that a user causes, pushed while a device shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from .device import Device, OnlineUser
from .frames import encode_frame

INTERVAL_S: Final = 0.1


class Drawer:
    """Pushes what the `Traffic` of each user has recorded."""

    def __init__(self, online: Mapping[str, OnlineUser]) -> None:
        self._online = online
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def watch(self, online: OnlineUser, device: Device, *, is_open: bool) -> None:
        """Show a device the operations of its user from now on, and the last ones at once."""
        device.shows_traffic = is_open
        self.update(online)
        if is_open:
            online.traffic.take_unsent()
            device.push(encode_frame({"type": "amqp", "entries": list(online.traffic.entries)}))

    def update(self, online: OnlineUser) -> None:
        """The devices of a user have changed."""
        online.traffic.is_watched = any(device.shows_traffic for device in online.devices)
        if online.traffic.is_watched:
            self.schedule()

    def schedule(self) -> None:
        """Push soon what was recorded."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._push)

    def _push(self) -> None:
        self._timer = None
        for online in self._online.values():
            if not online.traffic.is_watched:
                continue
            self.schedule()
            entries = online.traffic.take_unsent()
            if entries:
                frame = encode_frame({"type": "amqp", "entries": entries})
                for device in online.devices:
                    if device.shows_traffic:
                        device.push(frame)
