"""Run the tests of the harness many times, while other processes use all processors:
`python -m bench.patterns.harness_runs COUNT`. It prints how many of the runs failed."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import sys
import traceback

from tests.patterns import test_harness

LOAD_PROCESSES_COUNT = 2 * (os.cpu_count() or 1)


def use_processor() -> None:
    while True:
        pass


def main() -> None:
    count = int(sys.argv[1])
    tests = [
        function
        for name, function in inspect.getmembers(test_harness, inspect.isfunction)
        if name.startswith("test_")
    ]
    load = [
        multiprocessing.Process(target=use_processor, daemon=True)
        for _ in range(LOAD_PROCESSES_COUNT)
    ]
    for process in load:
        process.start()
    failed_count = 0
    for _ in range(count):
        for test in tests:
            try:
                test()
            except Exception:  # noqa: BLE001 - counted
                failed_count += 1
                traceback.print_exc()
    for process in load:
        process.terminate()
    print(json.dumps({"failed": failed_count, "runs": count * len(tests)}))


if __name__ == "__main__":
    main()
