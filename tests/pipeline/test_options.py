"""Errors of options name the option and the valid ones."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from recado.pipeline.options import OptionError, parse_options


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    url: str
    max_rows_per_trigger: Annotated[int, Meta(ge=1)] | None = None
    fail_on_data_loss: bool = True
    patience: float = 1.0


def test_they_become_what_they_mean_in_any_case() -> None:
    given = {"URL": "amqp:", "maxrowspertrigger": "5", "FailOnDataLoss": "FALSE", "patience": "2.5"}
    assert parse_options(Options, "x", given) == Options(
        url="amqp:", max_rows_per_trigger=5, fail_on_data_loss=False, patience=2.5
    )


def test_what_spark_was_told_is_no_concern_of_ours() -> None:
    assert parse_options(Options, "x", {"url": "1", "checkpointLocation": "/c"}) == Options(url="1")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, 'format("x") needs the option url'),
        (
            {"url": "", "maxRowPerTriger": "1"},
            "format(\"x\") has no option 'maxRowPerTriger'; did you mean maxRowsPerTrigger?",
        ),
        (
            {"url": "", "colour": "1"},
            (
                "format(\"x\") has no option 'colour'; "
                "available are url, maxRowsPerTrigger, failOnDataLoss, patience"
            ),
        ),
        (
            {"url": "", "maxRowsPerTrigger": "0"},
            "option maxRowsPerTrigger of format(\"x\") is '0': expected `int` >= 1",
        ),
        (
            {"url": "", "maxRowsPerTrigger": "many"},
            "option maxRowsPerTrigger of format(\"x\") is 'many': expected `int | null`, got `str`",
        ),
        (
            {"url": "", "failOnDataLoss": "perhaps"},
            "option failOnDataLoss of format(\"x\") is 'perhaps': expected `bool`, got `str`",
        ),
    ],
)
def test_what_is_wrong(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(Options, "x", given)
    assert str(caught.value) == told
