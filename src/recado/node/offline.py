"""A data folder on which no broker runs, for commands that look into it or change it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from recado.broker.broker import Broker
from recado.node.assembly import build_broker, open_data_folder
from recado.node.settings import Settings


@contextmanager
def open_offline_broker(settings: Settings) -> Iterator[Broker]:
    """The broker as it would start, but without clients, and without the file of `node.definitions`.

    What was done to it is kept in the end, unless by an exception. Without a data folder it has only what the
    configuration says.
    """
    storage = open_data_folder(settings)
    try:
        yield build_broker(
            replace(settings, node=replace(settings.node, definitions=None)), storage
        )
        if storage is not None:
            storage.store.close()
    finally:
        if storage is not None:
            storage.release()
