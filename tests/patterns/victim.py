"""A program that runs a flow or an outbox and is killed with SIGKILL.

    python -m tests.patterns.victim flow STORE FOLDER KILL_AT
    python -m tests.patterns.victim outbox STORE FOLDER

The folder stands for the broker: `published` has a line for each confirmed output, `acknowledged` one for each
acknowledged message. The flow sums the numbers 1 to 30 in batches of 4; it kills itself at the step KILL_AT.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recado.patterns.flow import FlowOutput
from recado.patterns.message import Message
from recado.patterns.outbox import Outbox
from recado.patterns.publisher import EncodedPublish
from recado.patterns.state import to_store
from recado.patterns.step import Outputs, StateTransaction
from tests.patterns.flows import Sum, encode, make_runtime

MESSAGES_COUNT = 30
BATCH_COUNT = 4


class Steps:
    """Counts the places at which the program can be killed."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def take(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def append(path: Path, lines: Sequence[object]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


async def run_flow(location: str, folder: Path, kill_at: int) -> None:
    steps = Steps(kill_at)

    class KilledSum(Sum):
        def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
            outputs = super().process(message, state)
            steps.take()
            return outputs

    def publish(outputs: Sequence[FlowOutput]) -> None:
        for output in outputs:
            steps.take()
            append(folder / "published", [json.loads(output.publish.body)])
        steps.take()
        runtime.discard(outputs)

    store = to_store(location)
    await store.open()
    runtime = make_runtime(store, KilledSum())
    publish(await runtime.start())
    while (first := count_lines(folder / "acknowledged")) < MESSAGES_COUNT:
        numbers = range(first + 1, min(first + BATCH_COUNT, MESSAGES_COUNT) + 1)
        results = await runtime.process([Message(body=n, message_id=str(n)) for n in numbers])
        steps.take()
        publish([output for result in results for output in result.outputs])
        append(folder / "acknowledged", numbers)
    await runtime.stop()
    await store.close()


async def run_outbox(location: str, folder: Path) -> None:
    async def publish(publish: EncodedPublish) -> None:
        await asyncio.sleep(0.005)  # the broker confirms it
        append(folder / "published", [publish.body.decode()])

    store = to_store(location)
    await store.open()
    outbox = Outbox(store, encode=encode, publish=publish)
    await outbox.start()
    await asyncio.Event().wait()  # until the program is killed


if __name__ == "__main__":
    mode, location, folder, *more = sys.argv[1:]
    if mode == "flow":
        asyncio.run(run_flow(location, Path(folder), int(more[0])))
    else:
        asyncio.run(run_outbox(location, Path(folder)))
