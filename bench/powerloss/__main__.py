"""Repeat an era: `python -m bench.powerloss SEED [--about TEXT]`, and print the verdict.

`--moment N` runs the scripted era instead, with a power loss after N operations. `--about` prints every event
that contains the text, for instance `('windowed', 12)`.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from bench.crash.verdict import Verdict
from bench.powerloss.era import Era, NodeStoppedError, Script
from bench.powerloss.judge import judge
from bench.powerloss.work import FLIPS, SCRIPTED, SCRIPTED_SEED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.powerloss", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=SCRIPTED_SEED)
    parser.add_argument("--moment", type=int)
    parser.add_argument("--about", metavar="TEXT")
    asked = parser.parse_args()
    script = Script(flips=FLIPS)
    if asked.moment is not None:
        script = msgspec.structs.replace(SCRIPTED, moment=asked.moment)
    era = Era(asked.seed, script)
    try:
        era.run()
        verdict = judge(era.history.events)
    except NodeStoppedError:
        verdict = Verdict()
    if asked.about:
        for number, event in enumerate(era.history.events):
            if asked.about in repr(event):
                print(f"{number}: {event}")
    problems = [*map(str, verdict.violations), *era.history.faults]
    print(f"{', '.join(each.name for each in era.districts)}; {era.shape}")
    print(", ".join(f"{count:,} {what}" for what, count in sorted(verdict.counts.items())))
    print("\n".join(problems) or "no violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
