"""Check a history again: `python -m bench.crash FILE [--about TEXT]`.

`--about` also prints every event whose line contains the text, for instance `"windowed",812`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.crash import history
from bench.crash.checker import check


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--about", metavar="TEXT")
    asked = parser.parse_args()
    if asked.about:
        lines = enumerate(asked.file.read_text().splitlines(), start=1)
        print("\n".join(f"{number}: {line}" for number, line in lines if asked.about in line))
    verdict = check(history.read(asked.file))
    for violation in verdict.violations:
        print(violation)
    print(", ".join(f"{count:,} {what}" for what, count in sorted(verdict.counts.items())))
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
