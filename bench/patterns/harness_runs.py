"""Run the tests of the harness many times, while other processes use all processors:
`python -m bench.patterns.harness_runs COUNT`. It prints a line of progress after each run, and in the end how many of
the runs failed. The load is twice as many busy processes as there are processors."""

from __future__ import annotations

import inspect
import json
import logging
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable

from tests.patterns import test_harness

LOAD_PROCESSES_COUNT = 2 * (os.cpu_count() or 1)
LOAD_NICENESS = 4  # less than half of the share of a test


def use_processor(parent: int) -> None:
    """Use one processor until the parent has ended, however it ended; the tests have a higher priority."""
    os.nice(LOAD_NICENESS)
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


def main() -> None:
    count = int(sys.argv[1])
    logging.disable()  # the tests make handlers fail, and nothing reads what is logged
    tests = [
        function
        for name, function in inspect.getmembers(test_harness, inspect.isfunction)
        if name.startswith("test_")
    ]
    load = [
        multiprocessing.Process(target=use_processor, args=(os.getpid(),), daemon=True)
        for _ in range(LOAD_PROCESSES_COUNT)
    ]
    for process in load:
        process.start()
    failed_count = 0
    for number in range(count):
        errors = [error for test in tests if (error := run(test))]
        failed_count += bool(errors)
        print(json.dumps({"progress": number / count, "errors": errors}), flush=True)
    for process in load:
        process.terminate()
    print(json.dumps({"failed": failed_count, "runs": count, "tests": count * len(tests)}))


def run(test: Callable[[], object]) -> str:
    """Return the traceback of a test, if it fails."""
    try:
        test()
    except Exception:  # noqa: BLE001 - counted
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    main()
