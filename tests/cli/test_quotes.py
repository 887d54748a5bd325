"""`recado quotes …`: invalid numbers are refused before anything starts."""

from __future__ import annotations

import pytest

import recado
from recado.cli import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--symbols", "0"], "'0' is not a number above 0"),
        (["--symbols", "100000000"], "100000000 symbols are too many; the maximum is 10,000"),
        (["--messages", "-1"], "'-1' is not a number above 0"),
        (["--speed", "nan"], "'nan' is not a number of 0 or more"),
        (["--speed", "fast"], "'fast' is not a number of 0 or more"),
        (["--activity", "0"], "'0' is not a number above 0"),
    ],
)
def test_what_is_no_market_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["quotes", "publish", *words])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_name_that_cannot_be_one_is_told(
    recado_broker: recado.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    url = recado_broker.url
    assert main(["quotes", "watch", "--plain", "--name", "", "--url", url]) == 2
    assert capsys.readouterr().err == "recado: the name of a subscriber is empty\n"
