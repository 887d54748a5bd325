"""Repeat a world: `python -m bench.membership_sim SEED [--plot NAME] [--size COUNT]`, and print the verdict."""

from __future__ import annotations

import argparse
import sys

from .script import PLOTS, draw
from .world import World


def main() -> int:
    plots = {plot.__name__: plot for plot in PLOTS}
    parser = argparse.ArgumentParser(prog="python -m bench.membership_sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--plot", metavar="NAME", choices=plots)
    parser.add_argument("--size", type=int, metavar="COUNT", help="number of nodes")
    asked = parser.parse_args()
    world = World(draw(asked.seed, plots.get(asked.plot), asked.size))
    verdict = world.run()
    print(world.script)
    print(f"packets of one node in one second: at most {verdict.sent_max}")
    print("\n".join(map(str, verdict.violations)) or "no violations")
    print(f"trace {world.trace()}")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
