"""`recado definitions` on a running broker: export, import and check over HTTP."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from recado.cli import EXIT_OK
from recado.cli.definitions import print_difference, print_import, write_document
from recado.definitions.document import parse_json

from .api import ManagementApi, ManagementError, path_of
from .server_address import parse_url, select_context


def run_on_server(verb: str, args: argparse.Namespace) -> int:
    """Run a verb and return the exit status. Raises `ManagementError` and `UnreachableError`."""
    context = select_context(args.url, args.context)
    api = ManagementApi(parse_url(context.url), ca_file=context.ca_file)
    path = path_of("definitions", *([] if args.vhost is None else [args.vhost]))
    try:
        if verb == "export":
            write_document(api.get(path), args.file)
            return EXIT_OK
        document = parse_json(Path(args.file).read_bytes())
        if verb == "import":
            api.request("POST", path, document)
            print_import(args.file, [], as_json=args.json)
            return EXIT_OK
        return print_difference(args.file, _compare(api, path, document), as_json=args.json)
    finally:
        api.close()


def _compare(api: ManagementApi, path: str, document: Any) -> dict[str, Any]:
    api.get(path_of("overview"))
    if not api.is_recado:  # it would ignore the query and import the document
        raise ManagementError(404, f"check: {api.address} is not recado; RabbitMQ cannot do this")
    found: dict[str, Any] = api.request("POST", path, document, {"dry_run": "true"})
    return found
