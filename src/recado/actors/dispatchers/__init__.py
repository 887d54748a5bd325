"""Dispatchers that run actors in threads, for handlers that block. The usual one is the loop itself (turn.py).

    ThreadPerActor   each actor has a thread to itself
    Pool             so many threads for all actors; the one to take for handlers that block
    WorkStealing     the same for actors of one type, of which the idle take messages from the busy
    SelfSizing       as many threads as there is work for while others block, woken once for many events

    async with Pool(8) as pool, ActorSystem("exchange") as system:
        await system.spawn(Reader, dispatcher=pool)

A dispatcher of one's own has one method, `dispatch`: see Dispatcher in turn.py. In all of them `async def`
handlers are awaited on the loop: only `def` handlers block a thread.
"""

from .elastic_pool import ElasticPool
from .fixed_pool import FixedPool
from .thread_per_actor import ThreadPerActor
from .work_stealing_pool import WorkStealingPool

__all__ = ["ElasticPool", "FixedPool", "ThreadPerActor", "WorkStealingPool"]
