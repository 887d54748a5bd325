"""Health checks of RabbitMQ, and probes without login: liveness, readiness and alarms."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from recado.amqp.properties import Properties
from recado.broker.declarations import declare_queue

from ..access import Access
from ..request import Answer, ApiRequest, bad_request
from ..routes import API
from .overview import check_node
from .topology import access_to

if TYPE_CHECKING:
    from ..console import Console, Listener

OK: Final = {"status": "ok"}
ALIVENESS_QUEUE: Final = "aliveness-test"
SINGLE_NODE: Final = {"status": "ok", "reason": "single node cluster"}


def _failed(reason: str, **fields: Any) -> Answer:
    return Answer(503, body={"status": "failed", "reason": reason, **fields})


@API.add("GET", "/api/aliveness-test/{vhost}", Access.VHOST, answers=(200, 503))
def test_aliveness(request: ApiRequest) -> Answer:
    """Declare the queue `aliveness-test`, publish to it and get the message back."""
    vhost = request.vhost()
    access, name = access_to(request, vhost), ALIVENESS_QUEUE
    queue = declare_queue(
        request.broker,
        access,
        name,
        durable=False,
        arguments={},
        connection=None,
        now=request.now_ms,
    )
    access.permissions.check_read("queue", name)
    channel = request.console.open_channel(request, access)
    try:
        channel.publish("", name, Properties(), b"test_message")
        message = channel.get(queue, no_ack=True)
    finally:
        channel.close()
    return Answer(body=OK) if message is not None else _failed("no message came back")


def _alarms(request: ApiRequest) -> Answer:
    alarm = request.console.server.alarm
    if alarm is None:
        return Answer(body=OK)
    resource = "memory" if "memory" in alarm else "disk"
    alarms = [{"node": request.console.node_name, "resource": resource}]
    return _failed(f"There are alarms in effect: {alarm}", alarms=alarms)


@API.add("GET", "/api/health/checks/alarms", Access.MANAGEMENT, answers=(200, 503))
def check_alarms(request: ApiRequest) -> Answer:
    """Answer 503 if a memory or disk alarm is in effect."""
    return _alarms(request)


@API.add("GET", "/api/health/checks/local-alarms", Access.MANAGEMENT, answers=(200, 503))
def check_local_alarms(request: ApiRequest) -> Answer:
    """Answer 503 if a memory or disk alarm of this node is in effect."""
    return _alarms(request)


@API.add("GET", "/api/health/checks/port-listener/{port}", Access.MANAGEMENT, answers=(200, 503))
def check_port_listener(request: ApiRequest) -> Answer:
    """Answer 503 if nothing listens on a port."""
    text = request.parameters["port"]
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise bad_request(f"port: not a number: {text!r}")
    ports = [each["port"] for each in request.console.listener_objects()]
    if int(text) in ports:
        return Answer(body={"status": "ok", "port": int(text)})
    return _failed("No active listener", missing=int(text), ports=ports)


@API.add(
    "GET", "/api/health/checks/protocol-listener/{protocol}", Access.MANAGEMENT, answers=(200, 503)
)
def check_protocol_listener(request: ApiRequest) -> Answer:
    """Answer 503 if no listener speaks a protocol."""
    wanted = request.parameters["protocol"]
    names = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqps": "amqp/ssl"}
    protocols = sorted({each["protocol"] for each in request.console.listener_objects()})
    if names.get(wanted.lower(), wanted.lower()) in protocols:
        return Answer(body={"status": "ok", "protocol": wanted})
    return _failed("No active listener", missing=wanted, protocols=protocols)


@API.add("GET", "/api/health/checks/virtual-hosts", Access.MANAGEMENT)
def check_virtual_hosts(request: ApiRequest) -> Answer:
    """Answer ok: a vhost always runs."""
    return Answer(body=OK)


UNITS_S: Final = {
    "days": 86_400.0,
    "weeks": 7 * 86_400.0,
    "months": 365 / 12 * 86_400,
    "years": 365 * 86_400.0,
}
WITHIN_DIGITS_MAX_COUNT: Final = 9


@API.add(
    "GET",
    "/api/health/checks/certificate-expiration/{within}/{unit}",
    Access.MANAGEMENT,
    answers=(200, 503),
)
def check_certificate_expiration(request: ApiRequest) -> Answer:
    """Answer 503 with the listeners whose certificates expire within a period."""
    within, unit = request.parameters["within"], request.parameters["unit"].lower()
    if not (within.isascii() and within.isdigit() and len(within) <= WITHIN_DIGITS_MAX_COUNT):
        raise bad_request("Invalid expiration value.")
    if unit not in UNITS_S:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    limit_s = request.now_ms / 1000 + int(within) * UNITS_S[unit]
    found = [_find_expiring(request.console, each, limit_s) for each in request.console.listeners]
    if expiring := [each for each in found if each is not None]:
        return _failed("Certificates expiring", expired=expiring)
    return Answer(body=OK)


def _find_expiring(console: Console, listener: Listener, limit_s: float) -> dict[str, Any] | None:
    """Return a listener with its certificates that expire before a time, None if there are none."""
    files = console.certificates
    if files is None or listener.protocol not in ("amqp/ssl", "https"):
        return None
    is_amqp = listener.protocol == "amqp/ssl"  # HTTPS asks for no client certificates
    certificate, authorities = (
        [_format_expiry(date) for date in dates if date.timestamp() < limit_s]
        for dates in (files.certificate_expiry, files.ca_expiry if is_amqp else ())
    )
    if not certificate and not authorities:
        return None
    return {
        "node": console.node_name,
        "protocol": listener.protocol,
        "interface": listener.address,
        "port": listener.port,
        "certfile": files.certificate_file,
        "cacertfile": (files.ca_file or "") if is_amqp else "",
        "certfile_expires_on": certificate,
        "cacertfile_expires_on": authorities,
    }


def _format_expiry(date: datetime) -> str:
    """Return a date as RabbitMQ writes it, with the hour in one digit if that suffices."""
    return f"{date:%Y-%m-%d} {date.hour}:{date:%M:%S}"


@API.add("GET", "/api/health/checks/node-is-mirror-sync-critical", Access.MANAGEMENT)
def check_mirror_sync_critical(request: ApiRequest) -> Answer:
    """Answer ok: there is one node."""
    return Answer(body=SINGLE_NODE)


@API.add("GET", "/api/health/checks/node-is-quorum-critical", Access.MANAGEMENT)
def check_quorum_critical(request: ApiRequest) -> Answer:
    """Answer ok: there is one node."""
    return Answer(body=SINGLE_NODE)


@API.add("GET", "/api/health/checks/ready-to-serve-clients", Access.MANAGEMENT, answers=(200, 503))
def check_ready(request: ApiRequest) -> Answer:
    """Answer 503 unless clients can connect."""
    return _readiness(request)


@API.add("GET", "/api/healthchecks/node", Access.MANAGEMENT, answers=(200, 503))
def check_any_node(request: ApiRequest) -> Answer:
    """Answer 503 if an alarm is in effect; deprecated by RabbitMQ."""
    return _alarms(request)


@API.add("GET", "/api/healthchecks/node/{node}", Access.MANAGEMENT, answers=(200, 503))
def check_one_node(request: ApiRequest) -> Answer:
    """Answer 503 if an alarm is in effect; deprecated by RabbitMQ."""
    check_node(request)
    return _alarms(request)


@API.add("GET", "/health/live", Access.PUBLIC)
def probe_liveness(request: ApiRequest) -> Answer:
    """Answer 200 while the process serves requests; alarms and recovery do not matter."""
    return Answer(body=OK)


@API.add("GET", "/health/ready", Access.PUBLIC, answers=(200, 503))
def probe_readiness(request: ApiRequest) -> Answer:
    """Answer 200 once clients can connect, 503 before that."""
    return _readiness(request)


def _readiness(request: ApiRequest) -> Answer:
    if request.console.is_ready:
        return Answer(body=OK)
    return _failed("the broker does not accept connections yet")


@API.add("GET", "/health/alarms", Access.PUBLIC, answers=(200, 503))
def probe_alarms(request: ApiRequest) -> Answer:
    """Answer 503 while a memory or disk alarm blocks publishers."""
    return Answer(body=OK) if request.console.server.alarm is None else _failed("alarm in effect")
