"""What can be wrong with reading a feed, beside what is wrong with its archive."""

from __future__ import annotations


class DataLossError(Exception):
    """Rows that should be read are gone; the text says which. With failOnDataLoss=false it goes on."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; to go on without them, set failOnDataLoss to false")
