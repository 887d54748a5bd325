"""A client of the event stream: parses server-sent events as a browser does."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from workshop.time_limit import scale

TIMEOUT_S = 60.0


class Event(NamedTuple):
    """One event; `id` is the last one that the stream has sent."""

    id: str
    type: str
    data: Any


class EventStream:
    """An open stream. `with` closes it; `name` is read from its first event."""

    def __init__(
        self,
        port: int,
        user: str = "guest",
        password: str = "guest",
        *,
        last_event_id: str = "",
        in_header: bool = True,
        receive_buffer_bytes: int | None = None,
        authorization: str = "",
        **query: str,
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=scale(TIMEOUT_S))
        if receive_buffer_bytes is not None:
            peer = self._connection.sock = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            peer.settimeout(scale(TIMEOUT_S))
            peer.connect(("127.0.0.1", port))
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"authorization": authorization or f"Basic {token}"}
        if last_event_id and not in_header:
            query["last_event_id"] = last_event_id
        elif last_event_id:
            headers["last-event-id"] = last_event_id
        target = "/api/events" + (f"?{urlencode(query)}" if query else "")
        self._connection.request("GET", target, headers=headers)
        self.response = self._connection.getresponse()
        self.headers = {name.lower(): value for name, value in self.response.getheaders()}
        self.lines: list[str] = []
        """The lines of the newest event, with comments before it."""
        self.last_id = ""
        assert self.response.status == 200, self.response.read()
        self.opened = self.read()
        assert self.opened.type == "stream.opened"
        self.name: str = self.opened.data["stream"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        """Return the events until the stream ends."""
        while True:
            try:
                yield self.read()
            except EOFError:
                return

    def read(self) -> Event:
        """Return the next event. Raises `EOFError` at the end."""
        self.lines, event_type, data = [], "message", ""
        while True:
            raw = self.response.readline()
            if not raw:
                raise EOFError
            line = raw.decode().removesuffix("\n")
            self.lines.append(line)
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                event_type = value
            elif field == "data":
                data += value
            elif not line and data:
                return Event(self.last_id, event_type, json.loads(data))

    def find(self, event_type: str, **fields: object) -> Event:
        """Return the next event of a type with these fields."""
        for event in self:
            if event.type == event_type and fields.items() <= event.data.items():
                return event
        raise AssertionError(f"the stream has ended without {event_type} {fields}")

    def find_all(self, until: str, **fields: object) -> list[Event]:
        """Return all events before one of a type with these fields; figures are left out."""
        found: list[Event] = []
        for event in self:
            if event.type == until and fields.items() <= event.data.items():
                return found
            if not event.type.startswith("rates."):
                found.append(event)
        raise AssertionError(f"the stream has ended without {until} {fields}")
