"""How the overlay grows: networks of 16 to 16,384 nodes in simulation, beside the figures of Pastry and Scribe.

    study.py      one size: growth by joins, routes, topics, a notification to 100,000 subscribers, failures
    drawing.py    the table and the plots

The full form examines all sizes and keeps the results of each in `.cache/overlay-scale`, so that an interrupted run
continues; they are valid for the sources with which they were made. The quick form stops at 1,024 nodes. Times are
simulated. There is no peer: the published figures are in the table that is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from bench.aims import Result
from bench.book import Book
from bench.plan import Plan
from bench.scenario import Sample, Side, limit

from . import drawing
from .study import Figures, examine

SIZES: Final = (16, 64, 256, 1_024, 4_096, 16_384)
QUICK_SIZE_MAX: Final = 1_024
ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "overlay-scale"
SOURCES: Final = ("src/recado/overlay", "bench/overlay_scale")

HOPS = limit("hops-excess", "mean hops above log16 N, at the worst size", "hops")
MISROUTED = limit("misrouted", "lookups that do not end at the owner, all sizes", "lookups")
JOIN = limit("join-messages", "messages per join, at the largest size", "messages")
STATE = limit("state", "nodes that a node knows, at the largest size", "nodes")
TOPICS = limit("topics", "topics of the fullest node, times the mean", "times")
COPIES = limit("copies", "copies by the busiest relay, 100,000 subscribers", "copies")
REPAIR = limit("repair", "until leaf sets are right after 10 % failed", "s")
SCENARIOS = (HOPS, MISROUTED, JOIN, STATE, TOPICS, COPIES, REPAIR)


def run(plan: Plan, book: Book) -> Iterator[str]:
    found = figures(plan)
    largest = found[-1]
    # Up to 256 nodes the owner sends all copies itself.
    in_trees = [each.copies_max for each in found if each.size > 256]
    values = {
        HOPS.name: max(each.hops_excess for each in found),
        MISROUTED.name: float(sum(each.misrouted + each.misrouted_repaired for each in found)),
        JOIN.name: largest.join_messages,
        STATE.name: largest.state_mean,
        TOPICS.name: largest.topics_max_to_mean,
        COPIES.name: float(max(in_trees, default=0)),
        REPAIR.name: max(each.repair_s for each in found),
    }
    for name, value in values.items():
        if plan.wants(name):
            # Simulated figures do not vary from round to round.
            for _ in range(plan.rounds):
                book.enter(name, Side.RECADO, Sample(value, {"nodes": largest.size}))
            yield name


def figures(plan: Plan) -> list[Figures]:
    sizes = [size for size in SIZES if not plan.quick or size <= QUICK_SIZE_MAX]
    return [load_or_examine(size) for size in sizes]


def load_or_examine(size: int, folder: Path = CACHE) -> Figures:
    """Return the figures of a size from an earlier run of the same sources, otherwise examine it."""
    file = folder / f"{size}-{fingerprint()}.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Figures)
    except (FileNotFoundError, msgspec.DecodeError):
        found = examine(size)
    folder.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(found))
    new.replace(file)
    return found


def fingerprint() -> str:
    digest = blake2b(digest_size=8)
    names = ("identifier", "leaf_set", "routing_table", "prefix_routing", "dissemination", "study")
    for source in SOURCES:
        for file in sorted((ROOT / source).glob("*.py")):
            if file.stem in names:
                digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def illustrate(peer: str, results: Sequence[Result], plan: Plan, file: Path) -> list[Path]:
    found = figures(plan)
    return [
        draw(found, file.with_suffix(suffix))
        for draw, suffix in ((drawing.write_table, ".md"), (drawing.draw, ".png"))
    ]
