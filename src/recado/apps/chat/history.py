"""The history of the chat is a feed: publishing to it, and applying it to the read model.

A publication is finished when it is **applied**: the broker has confirmed it, which means that it is stored in the
queue of the archive, and the read model has it. Only then does its author see it as sent, and only then is it published
to the exchange of its room. So nothing is shown that the history lacks.

CHH1  Publications of a user are in the history in the order in which `publish` was called.
CHH2  What is not answered may be published again: under the same id it is applied once (CHR1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from recado.feeds import Feed, Message, Vector

from .messages import (
    Applied,
    NameEnricher,
    Publication,
    encode_text,
    parse_publication,
    to_message,
)
from .read_model import ReadModelWriter

SUBSCRIBER_NAME: Final = "chat-read-model"
BATCH_MAX_COUNT: Final = 1_000
"""Publications in one transaction. It bounds the memory and the delay of a start with a long history."""
MICROSECONDS_PER_MILLISECOND: Final = 1_000

log = logging.getLogger("recado.chat")


class ChatHistory:
    """Publishes to the feed, and applies what arrives from it."""

    def __init__(
        self,
        feed: Feed,
        writer: ReadModelWriter,
        writing: Executor,
        on_applied: Callable[[Sequence[Applied]], object],
    ) -> None:
        """`on_applied` is called in the event loop with what was applied, in order; `writing` has one thread."""
        self._feed = feed
        self._writer = writer
        self._writing = writing
        self._on_applied = on_applied
        self._waiting: dict[str, asyncio.Future[int | None]] = {}
        """Publications that are not applied yet, by id."""
        self.joined = asyncio.Event()
        """Set when the read model follows the feed."""

    async def publish(self, publication: Publication) -> asyncio.Future[int | None]:
        """Publish what a user has written; return a future of its position, None if it changed nothing.

        Waits only for room in the send window. If the same publication is under way, returns its future.
        """
        waiting = self._waiting.get(publication.id)
        if waiting is not None:
            return waiting
        waiting = self._waiting[publication.id] = asyncio.get_running_loop().create_future()
        message = to_message(publication)
        enriched = NameEnricher(publication.author).apply(message)
        try:
            await self._feed.publish(
                encode_text(publication.text),
                key=enriched.key,
                headers=enriched.headers,
                message_id=publication.id,
                properties=enriched.replace(headers={}, message_id=None).to_properties(),
            )
        except BaseException:
            self._finish(publication.id, None)
            raise
        return waiting

    async def run(self) -> None:
        """Apply the history until cancelled, starting where the read model ends."""
        start = Vector.from_text(self._writer.vector)
        async with self._feed.subscribe(SUBSCRIBER_NAME, recovery=start) as messages:
            self.joined.set()
            while batches := await messages.next_batches(BATCH_MAX_COUNT):
                own = [each for each in batches if each.publisher == self._feed.publisher]
                if own and own[-1][-1].sequence > self._feed.confirmed_sequence:
                    await self._feed.flush()
                received = [message for batch in batches for message in batch]
                await self._apply(received, messages.vector)

    async def _apply(self, received: Sequence[Message], vector: Vector) -> None:
        publications = [each for each in map(_parse, received) if each is not None]
        loop = asyncio.get_running_loop()
        applied = await loop.run_in_executor(
            self._writing, self._writer.apply, publications, vector.to_text()
        )
        self._on_applied(applied)
        positions = {each.publication_id: each.position for each in applied}
        for message in received:
            self._finish(message.message_id, positions.get(message.message_id))

    def _finish(self, publication_id: str, position: int | None) -> None:
        waiting = self._waiting.pop(publication_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(position)


def _parse(message: Message) -> Publication | None:
    publication = parse_publication(
        message.message_id,
        message.headers,
        message.properties.correlation_id if message.properties else None,
        message.body,
        message.timestamp // MICROSECONDS_PER_MILLISECOND,
    )
    if publication is None:
        log.warning(
            "ignoring a message of the history: not a publication of the chat (feed=%s sequence=%d)",
            message.feed,
            message.sequence,
        )
    return publication
