"""The attacker as a separate process: its work must not be measured as the broker's.

It prints `ready` when everything is prepared, attacks when it reads a line, prints the duration as a line of
JSON, and cleans up when its input ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from random import Random

from bench.book import NotMeasuredError
from bench.fairness.attacks import AFTERMATH_S, BY_NAME
from bench.fairness.wire import Client
from bench.program import READY

TIMEOUT_S = 170.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="attacker", description=__doc__)
    parser.add_argument("attack", choices=list(BY_NAME))
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--patience", type=float, default=TIMEOUT_S, help="seconds for the attack")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    attack = BY_NAME[chosen.attack](Random(chosen.seed), quick=chosen.quick)
    try:
        with Client(chosen.host, chosen.port, TIMEOUT_S) as client:
            attack.prepare(client)
            print(READY, flush=True)
            sys.stdin.readline()
            begun = time.monotonic()
            client.set_timeout(chosen.patience)
            finished = True
            try:
                attack.run(client)
            except TimeoutError:  # RabbitMQ takes hours for some
                finished = False
            took = time.monotonic() - begun
            time.sleep(attack.seconds(AFTERMATH_S))
            print(json.dumps({"seconds": took, "finished": finished}), flush=True)
            sys.stdin.readline()
            if finished:
                client.set_timeout(TIMEOUT_S)
                attack.clean(client)
    except (NotMeasuredError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
