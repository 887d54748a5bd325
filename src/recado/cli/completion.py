"""Shell completion: `recado completion bash|zsh|fish` prints a script that calls `recado complete`.

The script passes the words before the cursor; the last one may be incomplete. `complete` prints the candidates
that begin with it, one per line: commands, verbs, flags, and the names of objects, which it requests from the
server of the context in use. Flags are read from the help of the command, so this module has no list of them.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from typing import Final

from recado.cli import (
    EXIT_OK,
    EXIT_USAGE,
    MANAGEMENT_COMMANDS,
    PART_MODULES,
    list_verbs,
    print_error,
)

SCRIPTS: Final = {
    "bash": """\
_recado() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$(printf '%q' "$line")")
    done < <(recado complete "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _recado recado
""",
    "zsh": """\
#compdef recado
_recado() {
    local -a candidates
    candidates=("${(@f)$(recado complete "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    [[ -n "$candidates" ]] && compadd -- "${candidates[@]}" || _files
}
# In a folder of fpath this file is the function itself, which then has to complete; sourced, it only registers.
if [[ "${funcstack[1]}" = _recado ]]; then
    _recado "$@"
else
    compdef _recado recado
fi
""",
    "fish": """\
function __recado_candidates
    set --local candidates (recado complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command recado --no-files --arguments '(__recado_candidates)'
""",
}
INSTALL: Final = {
    "bash": "recado completion bash > ~/.local/share/bash-completion/completions/recado",
    "zsh": "recado completion zsh > ~/.zfunc/_recado   # a folder in fpath, before compinit",
    "fish": "recado completion fish > ~/.config/fish/completions/recado.fish",
}
NAMES_TIMEOUT_S: Final = 1.0  # the user waits for the candidates
NAMES_MAX_COUNT: Final = 200  # more than a person reads
FLAG: Final = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*", re.IGNORECASE)
VERBS_WITHOUT_NAMES: Final = frozenset({"list", "declare"})
RESOURCES_OF_ACTIONS: Final = {"get": "queues", "tap": "queues", "publish": "exchanges"}
"""The resource that the first argument of a command without verbs names."""
LISTS: Final = {
    "queues": ("queues", "name", True),
    "streams": ("queues", "name", True),
    "exchanges": ("exchanges", "name", True),
    "bindings": ("exchanges", "name", True),
    "policies": ("policies", "name", True),
    "permissions": ("users", "name", False),
    "feeds": ("feeds", "name", True),
}
"""The list to request for a resource, the field with the name, and whether each vhost has a list of its own."""


def run_completion(words: Sequence[str]) -> int:
    """Print the script of a shell."""
    if list(words) in ([], ["--help"], ["-h"]):
        lines = "\n".join(f"  {command}" for command in INSTALL.values())
        print(f"usage: recado completion bash|zsh|fish\n\nInstall the script with one of\n{lines}")
        return EXIT_OK if words else EXIT_USAGE
    script = SCRIPTS.get(words[0])
    if script is None or len(words) > 1:
        return print_error(
            f"completion: one of {', '.join(SCRIPTS)}, not {' '.join(words)!r}", EXIT_USAGE
        )
    sys.stdout.write(script)
    return EXIT_OK


def run_complete(words: Sequence[str]) -> int:
    """Print the candidates for the last word. Errors are not printed, because they would appear in the command line."""
    *before, prefix = words or [""]
    for candidate in find_candidates(before, prefix):
        if candidate.startswith(prefix) and candidate.isprintable():
            print(candidate)
    return EXIT_OK


def find_candidates(before: Sequence[str], prefix: str) -> Iterable[str]:
    """Return candidates for the word that follows `before`; they need not begin with the prefix."""
    verbs = list_verbs()
    if not before:
        return sorted(verbs)
    command, *rest = before
    if command not in verbs:
        return []
    if verbs[command] and not rest:
        return verbs[command]
    has_verb = bool(verbs[command])
    if prefix.startswith("-"):
        return read_flags([command, rest[0]] if has_verb else [command])
    previous = before[-1]
    if previous in ("-V", "--vhost"):
        return read_names("vhosts", before)
    if (
        previous == "--context"
        or (command == "context" and rest in (["use"], ["delete"], ["set"]))
        or (command == "migrate" and previous in ("--from", "--to"))
    ):
        from recado.cli.management.server_address import load_contexts

        return sorted(load_contexts().contexts)
    if previous == "--to":
        return read_names("queues", before)
    if command in PART_MODULES and rest[0] == "show" and not previous.startswith("-"):
        return read_names(PART_MODULES[command], before)
    if previous.startswith("-") or command not in MANAGEMENT_COMMANDS:
        return []
    if not has_verb:
        return read_names(RESOURCES_OF_ACTIONS.get(command, ""), before) if not rest else []
    return [] if rest[0] in VERBS_WITHOUT_NAMES else read_names(command, before)


def read_flags(words: Sequence[str]) -> list[str]:
    """Return the long flags in the help of a command."""
    from recado.cli import main

    printed = io.StringIO()
    with suppress(SystemExit), redirect_stdout(printed), redirect_stderr(io.StringIO()):
        main([*words, "--help"])  # argparse exits after the help
    found = FLAG.findall(printed.getvalue())
    return sorted({flag for flag in found if flag.startswith("--")})


def read_names(resource: str, before: Sequence[str]) -> list[str]:
    """Return names of objects on the server; none if it does not answer within `NAMES_TIMEOUT_S`."""
    from recado.cli.management.api import ManagementApi, ManagementError, UnreachableError, path_of
    from recado.cli.management.server_address import parse_url, select_context

    def value_of(*flags: str) -> str | None:
        given = [value for flag, value in pairwise(before) if flag in flags]
        return given[-1] if given else None

    if not resource:
        return []
    plural, name_field, in_vhost = LISTS.get(resource, (resource, "name", False))
    try:
        context = select_context(value_of("--url"), value_of("--context"))
        vhost = value_of("-V", "--vhost") or context.vhost
        url = parse_url(context.url)
        api = ManagementApi(url, ca_file=context.ca_file, request_timeout=NAMES_TIMEOUT_S)
        path = path_of(plural, vhost) if in_vhost else path_of(plural)
        items = api.get(path, {"columns": name_field})
        api.close()
    except (ManagementError, UnreachableError, ValueError, OSError):
        return []
    names = {str(item.get(name_field, "")) for item in items} - {""}
    return sorted(names)[:NAMES_MAX_COUNT]
