"""The records of an archive as text, which can be compared, in whatever order they were learned."""

from __future__ import annotations

from collections.abc import Collection

from recado.feeds.delivery_records import DeliveryRecords
from recado.feeds.layers.receive_buffer import ORDER_PREFIX
from recado.feeds.vector import Vector

from .history import Incarnation
from .nodes import Surroundings, written


def facts(
    table: DeliveryRecords, world: Surroundings, alive: Collection[Incarnation]
) -> dict[str, str]:
    """Everything from which certainty is computed, except for views of which the archive cannot know whether
    they were installed, and for acknowledgements of running members: the next one is always in flight."""

    def words(vector: Vector) -> str:
        known = {world.label(p): s for p, s in vector.items() if not p.startswith(ORDER_PREFIX)}
        holes = {world.label(p): f" without {list(spans)}" for p, spans in vector.holes.items()}
        return " ".join(f"{p}:{known[p]}{holes.get(p, '')}" for p in sorted(known))

    found = {}
    for id_, record in table.view_records.items():
        if not record.provisional:
            members = " ".join(map(world.text, record.view.members()))
            before = " ".join(map(written, record.previous_views))
            whole = "complete" if record.complete else "not complete"
            said = f"{members} after {before} at {words(record.cut)}, {whole}"
            found[f"view {written(id_)}"] = said
    for id_, settled in table.stability.items():
        found[f"the reach of {written(id_)}"] = words(settled.delivery_bound)
    over = [m for m in table.acknowledgements if world.incarnation(m) not in alive]
    for member in over:
        ack = table.acknowledgements[member]
        final = ", and no more" if ack.is_final else ""
        said = f"from {words(ack.start)} to {words(ack.vector)}{final}"
        found[f"what {world.text(member)} was given"] = said
    return found
