"""Repeat one case: `python -m bench.fuzz SEED CASE [--port N]`, and print the frames of both sides.

Without a port a broker is started for it, and its log is printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio

from bench.fuzz import case, target
from bench.fuzz.hostile import Hostile
from recado.amqp.codec import decode_method
from recado.amqp.errors import AmqpError
from recado.amqp.frames import FRAME_START, METHOD_FRAME_TYPE
from workshop.peers import HOST

SHOWN = 120  # bytes of a frame


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("case", type=int)
    parser.add_argument("--port", type=int, help="of a broker that runs already")
    asked = parser.parse_args()
    chosen = case.make(asked.seed, asked.case)
    print(f"{chosen}, in {len(chosen.pieces)} pieces, then the client {chosen.ending.value}")
    for frame in chosen.frames:
        print(f"  {described(frame)}")
    if asked.port is not None:
        asyncio.run(play(chosen, asked.port))
        return
    with target.target() as server:
        target.sweep(server, renew=True)
        asyncio.run(play(chosen, server.port))
        print(server.log.read_text())


def described(frame: bytes) -> str:
    """Return the method if it can be decoded, otherwise the bytes."""
    if len(frame) > FRAME_START.size and frame[0] == METHOD_FRAME_TYPE:
        try:
            _, channel, _ = FRAME_START.unpack_from(frame)
            return f"{channel} {decode_method(frame[7:-1])!r:.{SHOWN}}"
        except AmqpError:
            pass
    return f"{frame[:SHOWN]!r}"


async def play(chosen: case.Case, port: int) -> None:
    loop = asyncio.get_running_loop()
    _, hostile = await loop.create_connection(Hostile, HOST, port)
    seconds = await hostile.play(chosen)
    answers = hostile.answers
    print(f"ended after {seconds:.3f} s, closed with {answers.codes}, fault: {answers.fault}")


if __name__ == "__main__":
    main()
