"""What the users of the demo say: dialogues for its rooms, and answers to people."""

from __future__ import annotations

from typing import Final, NamedTuple

LOBBY: Final = "lobby"
BOT_NAMES: Final = ("Ada", "Bento", "Chiara", "Dmitri", "Eun-ji", "Farid")


class Line(NamedTuple):
    """One message of a dialogue."""

    speaker: int
    """Index of the speaker among those who take part."""
    text: str
    answers: int | None = None
    """Index of the line that this one answers, as a reply with a quote."""


Dialogue = tuple[Line, ...]

DIALOGUES: Final[dict[str, tuple[Dialogue, ...]]] = {
    LOBBY: (
        (
            Line(0, "Good morning! Has anyone seen the new build? 🚀"),
            Line(1, "Yes, it has been running here since breakfast."),
            Line(2, "Same here. The messages of this room are in a feed, by the way."),
            Line(0, "A feed?", 2),
            Line(2, "A channel with a memory: whoever was away gets what was missed, in order.", 3),
            Line(1, "So I can close my laptop and lose nothing. 👍", 4),
        ),
        (
            Line(1, "Lunch at one?"),
            Line(0, "I am in.", 0),
            Line(2, "Me too, if the tests are green by then.", 0),
            Line(1, "They will be."),
        ),
        (
            Line(2, "Tip: click on a name to write a private message."),
            Line(0, "And the arrow next to a message answers it. The colour shows the thread.", 0),
            Line(1, "Nice. What is the drawer on the right for?"),
            Line(2, "It shows what your clicks do on the broker: declare, bind, publish, ack.", 2),
        ),
    ),
    "messaging": (
        (
            Line(0, "Question: why does joining a room declare an exchange?"),
            Line(1, "Because the room is the exchange. Your queue is bound to it with #.", 0),
            Line(
                2, "And when you leave, only the binding goes. The exchange stays for the others."
            ),
            Line(0, "So a message is copied once for each member?", 1),
            Line(1, "Once for each queue. The body is shared inside the broker.", 3),
        ),
        (
            Line(2, "What happens to private messages while someone is offline?"),
            Line(0, "They wait in the queue of that user, and they are in the history.", 0),
            Line(1, "The exchange private-messages is direct: the routing key is the id."),
        ),
        (
            Line(1, "A message is shown as sent when the broker has confirmed it."),
            Line(2, "And if the broker restarts in between?", 0),
            Line(1, "Then it is sent again under the same id, and counted once.", 1),
            Line(0, "Idempotent receiver. Chapter 10 of the book. 📖"),
        ),
    ),
    "python": (
        (
            Line(0, "asyncio or threads for this one?"),
            Line(1, "asyncio for the sockets, a thread for SQLite.", 0),
            Line(2, "One writer, two readers, and the loop never waits for the disk."),
        ),
        (
            Line(2, "I rendered each message once for all sockets instead of once per socket."),
            Line(0, "And?", 0),
            Line(2, "500 readers cost about as much as 50 did before.", 1),
        ),
    ),
    "random": (
        (
            Line(0, "It is raining again. ☔"),
            Line(1, "Good weather for reading Hohpe and Woolf."),
            Line(2, "Or for coffee. ☕", 1),
        ),
        (
            Line(1, "Does anyone know where the word recado comes from?"),
            Line(2, "Portuguese: a short message that someone passes on.", 0),
            Line(0, "Fitting."),
        ),
    ),
}

GREETING: Final = (
    "Hello {name}! Try a reply with the arrow, or join another room: messaging, python, random."
)
ANSWERS: Final = (
    "Interesting! Tell us more.",
    "I thought the same yesterday.",
    "Good point. 👍",
    "Have you looked at the drawer? Your message is there, with its confirm.",
    "Try to stop the broker and write something: it is sent when the broker is back.",
)
PRIVATE_ANSWERS: Final = (
    "Hi {name}! This goes through the exchange private-messages, with your id as the routing key.",
    "Only the two of us see this: it was published under my id and under yours.",
    "I am only a bot, but I read everything. Ask again!",
)
