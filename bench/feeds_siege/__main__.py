"""One siege of any length: `python -m bench.feeds_siege TRANSPORT [--seed N] [--seconds S] [--quick]`."""

from __future__ import annotations

import argparse
import secrets
import sys

from bench.feeds_siege import SECONDS, one_siege
from bench.feeds_siege.schedule import FULL, QUICK
from bench.feeds_siege.siege import TRANSPORTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.feeds_siege", description=__doc__)
    parser.add_argument("transport", choices=TRANSPORTS)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--quick", action="store_true", help="shorter and more frequent faults")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    intensity = QUICK if asked.quick else FULL
    outcome = one_siege(asked.transport, asked.seed, asked.seconds, intensity)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
