"""Commands that administer a running broker over the HTTP API, recado or RabbitMQ.

Each command is a module of this package, imported when the command is called, because a command must have started
within 150 ms. Its `COMMAND` has a method `run`. A resource has verbs: `recado queues list`.

Exit status: 0 success, 1 failure, 2 wrong usage, 3 the object does not exist, 4 the login or a permission is
refused, 5 the server cannot be reached.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from recado.cli import EXIT_FAILED, EXIT_USAGE, describe_os_error, print_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_UNREACHABLE = 3, 4, 5


def run_management(command: str, words: Sequence[str], *, module_name: str = "") -> int:
    """Run a command and return the exit status; `module_name` is its module here if that has another name."""
    module = import_module(f"{__name__}.{module_name or command}")
    return report_errors(lambda: module.COMMAND.run(f"recado {command}", words))


def report_errors(execute: Callable[[], int]) -> int:
    """Call `execute` and return its exit status; an expected failure is one line on standard error."""
    from .api import AccessDeniedError, ManagementError, ObjectNotFoundError, UnreachableError

    try:
        return execute()
    except UnreachableError as error:
        return print_error(str(error), EXIT_UNREACHABLE)
    except ObjectNotFoundError as error:
        return print_error(str(error), EXIT_NOT_FOUND)
    except AccessDeniedError as error:
        return print_error(str(error), EXIT_REFUSED)
    except ManagementError as error:
        return print_error(str(error), EXIT_FAILED)
    except ValueError as error:
        return print_error(str(error), EXIT_USAGE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)
