"""One siege of any length: `python -m bench.patterns_siege BROKER [--seed N] [--kills N] [--control NAME]`."""

from __future__ import annotations

import argparse
import secrets
import sys

from bench.patterns_siege import Part, one_siege
from bench.patterns_siege.roles import Control


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.patterns_siege", description=__doc__)
    parser.add_argument("broker", choices=["recado", "rabbitmq"])
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument(
        "--control", type=Control, choices=list(Control), default=Control.NONE, metavar="NAME"
    )
    asked = parser.parse_args()
    outcome = one_siege(Part(asked.broker, 1, asked.kills, asked.control), asked.seed)
    print(outcome.summary)
    return 0 if outcome.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
