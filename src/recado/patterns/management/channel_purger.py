"""Channel purger: removes unwanted messages of a queue, for example those that tests have left there."""

from typing import Final

from ..messaging import Messaging
from ..reception import to_raw_message
from ..routing import SelectorLike, to_predicate

MAX_EXAMINED_COUNT: Final = 100_000


async def purge(app: Messaging, queue: str, condition: SelectorLike | None = None) -> int:
    """Remove the messages of a queue that match a condition, or all of them; return how many.

    Only ready messages are removed, not those that consumers hold. The body of a message is its bytes, from which
    a selector decodes JSON. Messages that do not match are held until the end and then return to their places. On
    a quorum queue, that counts as a delivery of each. At most the first `MAX_EXAMINED_COUNT` messages are examined.
    """
    async with await app.open_channel() as channel:
        if condition is None:
            return await channel.purge_queue(queue)
        matches = to_predicate(condition)
        found = await channel.declare_queue(queue, passive=True)
        removed_count, held = 0, None
        for _ in range(min(found.message_count, MAX_EXAMINED_COUNT)):
            delivery = await channel.get(queue)
            if delivery is None:
                break
            if matches(to_raw_message(delivery, queue)):
                delivery.ack()
                removed_count += 1
            else:
                held = delivery
        if held is not None:
            held.nack(multiple=True)  # all that are held, in their order
        return removed_count
