"""A process that writes an archive until it is killed, and says what is durable: `python -m … FOLDER GRACE`.

stdout  durable OFFSET, a line after each sync
"""

from __future__ import annotations

import sys
from random import Random
from threading import Thread

from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore

from .making import batch

PUBLISHERS = (1, 2, 3)
KEPT = 3000


def main(folder: str, grace: float) -> None:
    random = Random()
    with ArchiveStore(folder, "f", segment_size=20_000, seal_rows=1000, grace=grace) as store:
        state = store.archive_state()
        following = {who: state.vector.last_of(who.to_bytes(16, "big")) + 1 for who in PUBLISHERS}

        def maintain() -> None:
            while True:
                store.seal()
                store.apply_retention(RetentionLimits(max_messages=KEPT))

        Thread(target=maintain, daemon=True).start()
        while True:
            entries = []
            for _ in range(random.choice((1, 5))):
                who = random.choice(PUBLISHERS)
                entries.append(batch(who, following[who], random.choice((1, 10, 100))))
                following[who] = entries[-1].last + 1
            store.append(entries)
            store.sync()
            sys.stdout.write(f"durable {store.durable_offset}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
