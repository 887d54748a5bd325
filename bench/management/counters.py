"""What counting costs: recado as it is, next to a copy of it without the counters on the path of a message.

The copy is made from the source: statements that add to a counter which only statistics read are removed from it.
Both run with the HTTP API, so both are sampled. The load is the same, alternately; the figure is the processor
time for each message with the counters, compared with that without, in percent. Both figures are the least of
several short runs, because other processes on the machine only ever add to a run.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.book import Book
from bench.load import Load, count_for, sample
from bench.management.scene import running
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

SOURCES = Path(__file__).parents[2] / "src"
COUNTING_PACKAGES = ("broker", "server")

# Attributes that only statistics read, of publishers, channels, queues, exchanges and connections.
COUNTERS = frozenset(
    {
        "acknowledged_count",
        "delivered_count",
        "delivered_no_ack_count",
        "dropped",
        "get_count",
        "get_empty_count",
        "get_no_ack_count",
        "published_in",
        "published_out",
        "received_bytes",
        "redelivered_count",
        "returned",
        "routed",
        "sent_bytes",
    }
)
OBSERVERS = frozenset({"observe_run"})  # the histogram of sizes

RUNS_COUNT, QUICK_RUNS_COUNT = 12, 3  # of each side in a round
RUN_S, QUICK_RUN_S = 0.5, 0.2


def load(name: str, title: str, arguments: str) -> Load:
    scenario = Scenario(f"counters-{name}", f"counters: {title}", "% CPU", Comparison.AT_MOST)
    return Load({"cpu_us": scenario}, arguments)


LOADS = (
    load("auto-ack", "16 B, auto-ack", ""),
    load("acks", "confirms, an ack each", "--prefetch 1000 --ack-every 1 --confirm-window 1000"),
    load("singles", "one message per write, acks", "--per-send 1 --prefetch 100 --ack-every 1"),
)
SCENARIOS = tuple(scenario for each in LOADS for scenario in each.scenarios.values())


class Remover(ast.NodeTransformer):
    """Replaces statements that only count by `pass`."""

    def __init__(self) -> None:
        self.removed_count = 0

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        is_counter = isinstance(node.target, ast.Attribute) and node.target.attr in COUNTERS
        return self._remove(node) if is_counter else node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        called = node.value.func if isinstance(node.value, ast.Call) else None
        is_observer = isinstance(called, ast.Attribute) and called.attr in OBSERVERS
        return self._remove(node) if is_observer else node

    def _remove(self, node: ast.stmt) -> ast.stmt:
        self.removed_count += 1
        return ast.copy_location(ast.Pass(), node)


def copy_without_counters(folder: Path) -> int:
    """Copy the package recado into a folder without its counters; return how many statements were removed."""
    shutil.copytree(
        SOURCES / "recado", folder / "recado", ignore=shutil.ignore_patterns("__pycache__")
    )
    removed_count = 0
    for package in COUNTING_PACKAGES:
        for file in (folder / "recado" / package).rglob("*.py"):
            remover = Remover()
            tree = remover.visit(ast.parse(file.read_text()))
            if remover.removed_count:
                file.write_text(ast.unparse(tree))
                removed_count += remover.removed_count
    return removed_count


def run(folder: Path, plan: Plan, book: Book) -> Iterator[str]:
    """Take the samples; yield the name of each scenario when it is finished."""
    chosen = [each for each in LOADS if plan.wants(*each.names)]
    if not chosen:
        return
    names = [name for each in chosen for name in each.names]
    with ExitStack() as stack, book.measuring(*names):
        (folder / "uncounted").mkdir()
        copy_without_counters(folder / "uncounted")
        plain = {"PYTHONPATH": str(SOURCES)}
        uncounted = {"PYTHONPATH": str(folder / "uncounted")}
        nodes = [
            stack.enter_context(running(Side.RECADO, folder / name, book, environment)).server
            for name, environment in (("counting", plain), ("not-counting", uncounted))
        ]
        for each in chosen:
            seconds = QUICK_RUN_S if plan.quick else RUN_S
            count = count_for(each, nodes[0], seconds)
            for _ in range(plan.rounds):
                least = [float("inf")] * len(nodes)
                for _ in range(QUICK_RUNS_COUNT if plan.quick else RUNS_COUNT):
                    for index, node in enumerate(nodes):
                        least[index] = min(least[index], sample(each, node, count)["cpu_us"])
                enter(each, least, book)
            yield from each.names


def enter(each: Load, least: list[float], book: Book) -> None:
    counting, not_counting = least
    details: Mapping[str, float] = {"cpu_us": counting, "cpu_us_without": not_counting}
    for name in each.names:
        book.enter(name, Side.RECADO, Sample(100 * (counting / not_counting - 1), details))
