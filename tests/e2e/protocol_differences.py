"""How recado's answers to protocol errors differ from RabbitMQ's by design.

docs/compatibility.md has the same table.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .protocol_cases import Outcome


class Difference(NamedTuple):
    """A row of the table, and the cases that show it: patterns of their names and of both outcomes."""

    what: str
    rabbitmq: str
    recado: str
    why: str
    cases: str
    from_rabbitmq: str
    from_recado: str

    @property
    def row(self) -> tuple[str, str, str, str]:
        return self.what, self.rabbitmq, self.recado, self.why

    def covers(self, name: str, rabbitmq: Outcome, recado: Outcome) -> bool:
        return all(
            re.fullmatch(pattern, text) is not None
            for pattern, text in (
                (self.cases, name),
                (self.from_rabbitmq, " ".join(rabbitmq)),
                (self.from_recado, " ".join(recado)),
            )
        )


HANDSHAKE = r"(start-ok|tune-ok|connection\.open) expected"


def _close(code: int) -> str:
    return rf"connection\.close\({code}, \d+, \d+\) ended"


# The first that covers a case counts.
DIFFERENCES = (
    Difference(
        "protocol headers of AMQP 0-8 and 0-9",
        "accepted",
        "answered with the header of 0-9-1, then the socket closes",
        "no client in use sends them",
        r"protocol header expected: AMQP 0-[89].*",
        r"connection\.start usable",
        r"protocol header ended",
    ),
    Difference(
        "`connection.close` before the connection is open",
        "an error: the socket closes, or 504",
        "`connection.close-ok`",
        "a client may close at any time",
        rf"{HANDSHAKE}: connection\.close",
        rf"ended|{_close(504)}",
        r"connection\.close-ok ended",
    ),
    Difference(
        "frames of 4,097 to 8,192 bytes before `connection.tune-ok`",
        "the socket closes after 3 s",
        "accepted, as in RabbitMQ from 4.1 on",
        "client properties and tokens can be that long",
        r"start-ok expected: start-ok with a frame of 4,200 bytes",
        r"ended",
        r"connection\.tune usable",
    ),
    Difference(
        "`connection.tune-ok` with a limit of 0, if the broker has one",
        "the socket closes after 3 s",
        "the broker's limit applies",
        "0 means no preference to most clients",
        r"tune-ok expected: tune-ok\((channel_max=0, .*|.*frame_max=0)\)",
        r"ended",
        r"usable",
    ),
    Difference(
        "unknown class or method ids",
        "the connection's process crashes: the socket closes without a reply",
        "503 with these ids; ignored while the connection closes",
        "every error has a reply",
        r".*: unknown class \d+ method \d+( on channel 0)?",
        r"ended",
        rf"{_close(503)}|usable",
    ),
    Difference(
        "an error before `connection.open`",
        "the socket closes without a reply after 3 s",
        "the reply code (501 to 505, 530) with the ids of the method, immediately",
        "every error has a reply",
        r"(start-ok|tune-ok) expected: .*",
        r"ended",
        r"connection\.close\((50[1-5]|530), \d+, \d+\) ended",
    ),
    Difference(
        "a malformed method where `connection.open` is expected",
        "the socket closes without a reply after 3 s",
        "501 with the ids of the method",
        "every error has a reply",
        r"connection\.open expected: .*",
        r"ended",
        _close(501),
    ),
    Difference(
        "a malformed method on channel 0",
        "541, without ids",
        "501 with the ids of the method, as on other channels",
        "the fault is the client's",
        r"channel 0: .*",
        r"connection\.close\(541, 0, 0\) ended",
        _close(501),
    ),
    Difference(
        "malformed field tables in arguments",
        "the connection's process crashes: the socket closes without a reply",
        "501 with the ids of the method",
        "every error has a reply",
        r"channel open: .* with (an?) .*",
        r"ended",
        _close(501),
    ),
    Difference(
        "`basic.publish` with an exchange or routing key that is not UTF-8",
        "accepted",
        "501 with the ids of the method, as in other methods",
        "names are text",
        r"channel open: basic\.publish with \w+ that is not UTF-8",
        r"connection\.close\(505, 60, 40\) ended",  # a method follows instead of the content
        _close(501),
    ),
    Difference(
        "other strings that are not UTF-8",
        "501, on channel 0 with the ids of the method, on other channels without",
        "501 with the ids of the method",
        "they identify the failed method",
        r"channel open: .* that is not UTF-8",
        r"connection\.close\(501, 0, 0\) ended",
        _close(501),
    ),
    Difference(
        "malformed message properties",
        "541, without ids; unknown property flags are ignored",
        "501 with the ids of the method",
        "the fault is the client's; consumers could not read such a message",
        r"content header expected: content header with.*",
        r"connection\.close\(541, 0, 0\) ended|usable",
        _close(501),
    ),
    Difference(
        "a body that is longer than its header says",
        "the broker waits for more of it",
        "501 with the ids of the method",
        "every error has a reply",
        r"content body expected: body that is too long",
        r"usable",
        _close(501),
    ),
    Difference(
        "a message above the size limit",
        "406 when it has arrived",
        "406 when its header has arrived",
        "the limit is known then",
        r"content header expected: content header of 2\^64 - 1 bytes",
        r"usable",
        r"channel\.close\(406, 60, 40\) usable",
    ),
    Difference(
        "a method with content on a channel that is not open",
        "504 when the content has arrived",
        "504 immediately",
        "nothing is buffered for a channel that is not open",
        r"channel not open: .* without content",
        r"usable",
        _close(504),
    ),
    Difference(
        "the last declared queue (empty name) on a channel that is not open",
        "404 closes the channel",
        "504, as other methods",
        "the channel is not open",
        r"channel not open: .* of the last queue",
        r"channel\.close\(404, \d+, \d+\) usable",
        _close(504),
    ),
    Difference(
        "a second `connection.close`",
        "answered each time",
        "answered once",
        "the connection is closed after the first answer",
        r"connection (closing|closed by the client): connection\.close",
        r"connection\.close-ok (connection\.close-ok ended|usable)",
        r"(connection\.close-ok ended|usable)",
    ),
)
