"""The expiry of certificates: RabbitMQ's health check, and a metric."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import recado

from ..certificate_folder import CertificateFolder
from .http import Api, Reply

CHECK = "/api/health/checks/certificate-expiration"
METRIC = "recado_certificate_expiry_timestamp_seconds"


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder(tmp_path)


def open_api(broker: recado.Broker, folder: CertificateFolder) -> Api:
    assert broker.management_port is not None
    return Api(broker.management_port, tls=folder.client())


def check(api: Api, within: object, unit: str = "days") -> Reply:
    return api.request("GET", f"{CHECK}/{within}/{unit}")


def test_without_tls_nothing_expires(api: Api) -> None:
    assert check(api, 9999, "years") == (200, check(api, 1).headers, {"status": "ok"})


def test_expiring_listeners_are_listed(folder: CertificateFolder) -> None:
    folder.issue(days=20)
    with recado.Broker(config=folder.config(ca=str(folder.ca))) as broker:
        api = open_api(broker, folder)
        node = api.get("/api/overview")["node"]
        for within, unit in ((1, "days"), (2, "weeks"), (19, "days"), (0, "years")):
            assert check(api, within, unit).body == {"status": "ok"}
        reply = check(api, 1, "months")
        assert reply.status == 503
        expected: dict[str, Any] = {
            "node": node,
            "interface": "127.0.0.1",
            "certfile": str(folder.certificate),
        }
        amqps, https = (
            {**expected, "protocol": "amqp/ssl", "port": broker.tls_port},
            {**expected, "protocol": "https", "port": broker.management_port},
        )
        found = {each["protocol"]: each for each in reply.body.pop("expired")}
        assert reply.body == {"status": "failed", "reason": "Certificates expiring"}
        for each in found.values():
            (date,) = each.pop("certfile_expires_on")
            assert re.fullmatch(r"\d{4}-\d\d-\d\d \d{1,2}:\d\d:\d\d", date)
            expires = datetime.strptime(date, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
            assert abs(expires - datetime.now(UTC) - timedelta(days=20)) < timedelta(minutes=1)
        no_authority = {"cacertfile": "", "cacertfile_expires_on": []}
        authority = {"cacertfile": str(folder.ca), "cacertfile_expires_on": []}
        assert found == {"amqp/ssl": {**amqps, **authority}, "https": {**https, **no_authority}}


def test_authorities_of_clients_count_for_amqp(folder: CertificateFolder) -> None:
    folder.issue(days=5)
    folder.ca.write_bytes(folder.certificate.read_bytes())
    folder.issue(days=20)
    with recado.Broker(config=folder.config(ca=str(folder.ca))) as broker:
        [expiring] = check(open_api(broker, folder), 6).body["expired"]
        assert expiring["protocol"] == "amqp/ssl"
        assert expiring["certfile_expires_on"] == []
        assert len(expiring["cacertfile_expires_on"]) == 1
        found = check(open_api(broker, folder), 1, "Months").body["expired"]
        assert sorted(each["protocol"] for each in found) == ["amqp/ssl", "https"]


@pytest.mark.parametrize("within", ["x", "-1", "1.5", "%C2%B2", "9" * 10])
def test_a_period_is_a_number(api: Api, within: str) -> None:
    reply = check(api, within)
    assert reply.status == 400
    assert reply.body == {"error": "bad_request", "reason": "Invalid expiration value."}


def test_units_are_days_to_years(api: Api) -> None:
    reply = check(api, 1, "hours")
    assert reply.status == 400
    reason = "Time unit not recognised. Supported units: days, weeks, months, years."
    assert reply.body == {"error": "bad_request", "reason": reason}


def test_the_metric_is_the_first_expiry_of_each_file(folder: CertificateFolder) -> None:
    folder.issue(days=20)
    with recado.Broker(config=folder.config(ca=str(folder.ca))) as broker:
        page = open_api(broker, folder).request("GET", "/metrics").body
        samples = dict(line.split(" ") for line in page.splitlines() if line.startswith(METRIC))
        left_s = float(samples[METRIC + '{file="certificate"}']) - time.time()
        assert left_s == pytest.approx(20 * 86_400, abs=60)
        assert float(samples[METRIC + '{file="ca"}']) > time.time() + 86_400


def test_without_tls_there_is_no_metric(api: Api) -> None:
    assert METRIC not in api.request("GET", "/metrics").body
