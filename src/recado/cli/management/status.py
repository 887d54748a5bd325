"""`recado status`: the state of a server on one screen."""

from __future__ import annotations

import argparse
from typing import Any

from recado.cli import EXIT_FAILED, EXIT_OK
from recado.cli.terminal import Colour, escape_unprintable

from .api import AccessDeniedError, path_of
from .command import Command, Invocation
from .output import Form, format_bytes, format_count, format_rate, read_path

SECONDS_IN = {"d": 86_400, "h": 3_600, "min": 60}


def _add(parser: argparse.ArgumentParser) -> None:
    del parser  # no arguments of its own


def _status(call: Invocation) -> int:
    """Print the state; the exit status is 1 if an alarm blocks publishers and the user may see the nodes."""
    overview = call.api.get(path_of("overview"))
    try:
        nodes = call.api.get(path_of("nodes"))
    except AccessDeniedError:  # only users with the tag monitoring see nodes
        nodes = []
    alarms = [
        f"{kind} on {node['name']}"
        for node in nodes
        for kind, field in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
        if node.get(field)
    ]
    if call.output.form is Form.JSON:
        call.output.json({"overview": overview, "nodes": nodes, "alarms": alarms})
    else:
        _print(call, overview, nodes, alarms)
    return EXIT_FAILED if alarms else EXIT_OK


def _print(
    call: Invocation, overview: dict[str, Any], nodes: list[dict[str, Any]], alarms: list[str]
) -> None:
    output = call.output
    rows = [
        ("server", _product(call, overview)),
        ("cluster", str(overview.get("cluster_name", ""))),
    ]
    for node in nodes:
        rows += [
            ("node", f"{node['name']}, up {_duration(node.get('uptime', 0) / 1000)}"),
            ("memory", _share(node, "mem_used", "mem_limit")),
            ("disk free", format_bytes(node.get("disk_free"))),
            ("open files", _share(node, "fd_used", "fd_total", format_count)),
        ]
    totals = overview.get("object_totals", {})
    rows += [
        (name, format_count(totals.get(name, 0)))
        for name in ("connections", "channels", "consumers", "queues", "exchanges")
    ]
    lengths = overview.get("queue_totals", {})
    ready = format_count(lengths.get("messages_ready", 0))
    unacked = format_count(lengths.get("messages_unacknowledged", 0))
    rows.append(("messages", f"{ready} ready, {unacked} unacked"))
    for title, field in (("publish", "publish"), ("deliver", "deliver_get"), ("ack", "ack")):
        value = read_path(f"message_stats.{field}_details.rate")(overview)
        rows.append((title, format_rate(value or 0)))
    rows.append(("listening", ", ".join(map(_describe_listener, overview.get("listeners", [])))))
    if output.form is Form.PLAIN:
        if nodes:
            rows.append(("alarms", ", ".join(alarms)))
        for title, value in rows:
            output.line(f"{title}\t{escape_unprintable(value)}")
        return
    width = max(len(title) for title, _ in rows)
    for title, value in rows:
        shown = escape_unprintable(value)
        output.line(f"{output.paint(f'{title:{width}}', Colour.DIM)}  {shown}")
    if alarms:
        for alarm in map(escape_unprintable, alarms):
            output.line(output.paint(f"ALARM: {alarm}; publishers are blocked", Colour.RED))
    elif nodes:
        output.line(output.paint("no alarms", Colour.GREEN))


def _describe_listener(listener: dict[str, Any]) -> str:
    address = listener["ip_address"]
    host = f"[{address}]" if ":" in address else address
    return f"{listener['protocol']} {host}:{listener['port']}"


def _product(call: Invocation, overview: dict[str, Any]) -> str:
    version = overview.get("product_version", overview.get("rabbitmq_version", ""))
    if call.api.is_recado:
        own = overview.get("erlang_full_version", "recado").removesuffix(" on Python")
        return f"{own}, with the API of RabbitMQ {version}"
    return f"{overview.get('product_name', 'RabbitMQ')} {version}"


def _share(node: dict[str, Any], used: str, limit: str, show: Any = format_bytes) -> str:
    """Return `used of limit (percent)`."""
    if not isinstance(node.get(used), int) or not isinstance(node.get(limit), int):
        return "unknown"
    share = node[used] / max(node[limit], 1)
    return f"{show(node[used])} of {show(node[limit])} ({share:.0%})"


def _duration(seconds: float) -> str:
    for unit, length in SECONDS_IN.items():
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


COMMAND = Command(
    "Show the state of a server. Exit status 1: an alarm blocks publishers.", _add, _status
)
