"""Dispatchers that run actors in threads, for handlers that block. The default dispatcher is the event loop.

    ThreadPerActor     one thread for each actor
    FixedPool          a fixed number of threads for all actors: the usual choice
    WorkStealingPool   the same for actors of one type; idle actors take messages from busy ones
    ElasticPool        adds threads while its workers block, and removes idle ones

    async with FixedPool(8) as pool, ActorSystem("exchange") as system:
        await system.spawn(Reader, dispatcher=pool)

A custom dispatcher implements one method, `dispatch` (see Dispatcher in runtime/loop_dispatcher.py). With every
dispatcher `async def` handlers are awaited on the event loop; only `def` handlers occupy a thread.
"""

from .elastic_pool import ElasticPool
from .fixed_pool import FixedPool
from .thread_per_actor import ThreadPerActor
from .work_stealing_pool import WorkStealingPool

__all__ = ["ElasticPool", "FixedPool", "ThreadPerActor", "WorkStealingPool"]
