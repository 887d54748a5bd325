"""The pytest fixture `recado_harness`: the class `Harness`, which tests an application on an embedded broker.

    async def test_an_order_has_a_receipt(recado_harness):
        async with recado_harness(app) as harness:
            await app.publish("orders", Order(1))
            await harness.settled()

pytest loads this module in every run where recado is installed, so it imports nothing heavy until a test uses
the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .harness import Harness


@pytest.fixture
def recado_harness() -> type[Harness]:
    """The class `Harness`; each of its blocks has an embedded broker of its own."""
    from .harness import Harness

    return Harness
