"""Repeat a world: `python -m bench.overlay_sim SEED [--about TEXT]`, and print the verdict.

`--about` prints every event that contains the text, for instance `n1.1` or `DeliveryRecord`; `--about ""` prints all.
"""

from __future__ import annotations

import argparse
import sys

from .judge import judge
from .script import draw
from .world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.overlay_sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--about", metavar="TEXT")
    asked = parser.parse_args()
    script = draw(asked.seed)
    world = World(script)
    world.run()
    verdict = judge(world.history)
    if asked.about is not None:
        for event in world.history:
            if asked.about in str(event):
                print(event)
    print(script)
    print(", ".join(f"{count:,} {what}" for what, count in sorted(verdict.counts.items())))
    problems = [*world.faults, *map(str, verdict.violations)]
    print("\n".join(problems) or "no violations")
    print(f"trace {world.history.trace()}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
