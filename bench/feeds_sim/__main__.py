"""Repeat a world: `python -m bench.feeds_sim SEED [--plot NAME] [--about TEXT]`, and print the verdict.

`--about` prints every event that contains the text, for instance `s1` or `Installed`; `--about ""` prints all.
`--plot` selects a combination of faults, for instance `by_turns`, instead of those that the seed chooses.
"""

from __future__ import annotations

import argparse
import sys

from .judge import judge
from .plots import WITH_BROKER, WITHOUT_BROKER
from .script import draw
from .world import World

PLOTS = {plot.__name__: plot for plot in (*WITHOUT_BROKER, *WITH_BROKER)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.feeds_sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--about", metavar="TEXT")
    parser.add_argument("--plot", metavar="NAME", choices=PLOTS)
    asked = parser.parse_args()
    script = draw(asked.seed, PLOTS.get(asked.plot))
    world = World(script)
    world.run()
    verdict = judge(world.history)
    if asked.about is not None:
        for event in world.history:
            if asked.about in str(event):
                print(event)
    print(script)
    print(", ".join(f"{count:,} {what}" for what, count in sorted(verdict.counts.items())))
    # The history of a world that stopped halfway cannot be judged.
    problems = world.faults or [str(violation) for violation in verdict.violations]
    print("\n".join(problems) or "no violations")
    print(f"trace {world.trace()}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
