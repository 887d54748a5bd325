"""One text of a run again: `python -m bench.selector SEED NUMBER`."""

from __future__ import annotations

import argparse

from bench.selector.fuzz import make
from bench.selector.texts import try_one


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.selector", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("number", type=int)
    asked = parser.parse_args()
    outcome = try_one(make(asked.seed, asked.number))
    print(repr(outcome.text))
    print(
        f"understood: {outcome.understood}, {outcome.seconds * 1e3:.2f} ms, fault: {outcome.fault}"
    )


if __name__ == "__main__":
    main()
