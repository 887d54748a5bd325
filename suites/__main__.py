"""`./dev suites`: run the client projects' own test suites and write docs/compatibility.md.

The exit status is 0 only when every suite asked for was run, and every test ended as on RabbitMQ
or as suites/expectations.toml explains.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from suites import expectations, page, results
from suites.catalogue import SUITES, Repository, Suite
from suites.places import DOWNLOADS, ROOT, NotAvailableError
from suites.running import BROKERS, run
from workshop.peers import PeerStartError
from workshop.system import MissingProgramsError


def main() -> int:
    listed = "\n".join(f"  {suite.name:<9} {suite.title}" for suite in SUITES.values())
    parser = argparse.ArgumentParser(
        prog="./dev suites",
        description="Run the client projects' own test suites; write docs/compatibility.md.",
        epilog=f"suites:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", metavar="NAME", help="default: all of them")
    parser.add_argument("--broker", choices=[*BROKERS, "both"], default="both")
    parser.add_argument("--checkout", type=Path, metavar="DIR", help="a clone of the repository")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.name if name not in SUITES]
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    wanted = [SUITES[name] for name in chosen.name or SUITES]
    if chosen.checkout and not (len(wanted) == 1 and isinstance(wanted[0].source, Repository)):
        parser.error("--checkout goes with the name of one suite that comes from a repository")
    brokers = list(BROKERS) if chosen.broker == "both" else [chosen.broker]
    known = expectations.load()
    good = [
        one_run(suite, broker, known.get(suite.name, []), chosen.checkout)
        for suite in wanted
        for broker in brokers
    ]
    page.write(results.load(), known)
    print(f"written: {page.FILE.relative_to(ROOT)}")
    return 0 if all(good) else 1


def one_run(
    suite: Suite, broker: str, known: list[expectations.Expectation], checkout: Path | None
) -> bool:
    """Run, keep the summary, and tell what is not as expected; whether nothing is."""
    print(f"{suite.name} on {broker} …", flush=True)
    try:
        summary, cases = run(suite, broker, checkout)
    except (NotAvailableError, MissingProgramsError, PeerStartError) as trouble:
        print(f"  not run: {trouble}", flush=True)
        return False
    store = results.load()
    store.setdefault(suite.name, {})[broker] = summary
    results.save(store)
    model = results.model_for(suite.name, summary, broker)
    verdict = expectations.judge(cases, known, broker, model)
    log = (DOWNLOADS / "logs" / f"{suite.name}-{broker}.log").relative_to(ROOT)
    print(f"  {page.figure(summary)}, {len(summary.failed)} fail (log: {log})")
    for line in verdict.lines():
        print(f"  {line}")
    sys.stdout.flush()
    return verdict.holds


if __name__ == "__main__":
    sys.exit(main())
