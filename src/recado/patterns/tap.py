"""The processor of wire taps: it observes copies of messages, and never holds anything up.

A handler that is slower than the messages misses some: at most `BUFFERED_MAX_COUNT` wait for it, and the number
of those that were skipped is counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from recado.client import Delivery

from .endpoint import Intake
from .errors import TranslationError
from .handler import Handler
from .reception import to_message
from .translation import Translators

log = logging.getLogger("recado.patterns")

BUFFERED_MAX_COUNT = 1_000


class TapProcessor:
    """Calls a handler with a copy of each message; its errors are logged."""

    def __init__(self, tag: str, handler: Handler, translators: Translators) -> None:
        self.tag = tag
        self.handler = handler
        self.skipped_count = 0
        self.running_count = 0
        self.handled_count = 0
        self.failed_count = 0
        self.problems: Sequence[str] = ()
        self._translators = translators
        self._buffer: deque[Delivery] = deque(maxlen=BUFFERED_MAX_COUNT)
        self._filled = asyncio.Event()

    async def run(self, consumer: Intake, queue: str) -> None:
        """Observe until the consumer ends."""
        observing = asyncio.create_task(self._observe(queue))
        try:
            async for batch in consumer.batches():
                free_count = BUFFERED_MAX_COUNT - len(self._buffer)
                self.skipped_count += max(len(batch) - free_count, 0)
                self._buffer.extend(batch)
                self._filled.set()
        finally:
            observing.cancel()
            await asyncio.wait([observing])

    async def _observe(self, queue: str) -> None:
        while True:
            while self._buffer:
                self.running_count = 1
                await self._call(self._buffer.popleft(), queue)
            self.running_count = 0
            self._filled.clear()
            await self._filled.wait()

    async def _call(self, delivery: Delivery, queue: str) -> None:
        try:
            await self.handler.call(self._argument(delivery, queue))
            self.handled_count += 1
        except TranslationError as error:
            self.failed_count += 1
            log.warning(
                "tapped message cannot be translated (endpoint=%s error=%s)", self.tag, error
            )
        except Exception:
            self.failed_count += 1
            log.exception("exception in the handler of a wire tap (endpoint=%s)", self.tag)

    def _argument(self, delivery: Delivery, queue: str) -> Any:
        properties = delivery.properties
        body_type = self.handler.body_type
        raw = self._translators.decompress(delivery.body, properties.content_encoding, body_type)
        body = self._translators.decode(raw, properties.content_type, body_type)
        if not self.handler.wants_message:
            return body
        return to_message(delivery, queue, body, properties)
