"""py-amqp's and kombu's own suites on recado; the larger ones are for `./dev suites`."""

from __future__ import annotations

import pytest

from suites import expectations, results
from suites.catalogue import SUITES
from suites.running import run


@pytest.mark.parametrize("name", ["py-amqp", "kombu"])
@pytest.mark.timeout(600)  # the first run also downloads the suite
def test_a_client_projects_own_suite(name: str) -> None:
    summary, cases = run(SUITES[name], "recado")
    model = results.model_for(name, summary, "recado")
    verdict = expectations.judge(cases, expectations.load().get(name, []), "recado", model)
    assert cases
    assert verdict.holds, "\n".join(verdict.lines())
