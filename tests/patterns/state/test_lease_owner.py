"""Owners of leases whose process has ended are recognised."""

import subprocess
import sys

from recado.patterns.state.lease_owner import is_dead, new_owner


def test_an_owner_is_dead_when_its_process_has_ended() -> None:
    program = (
        "from recado.patterns.state.lease_owner import new_owner\n"
        "print(new_owner(), flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert not is_dead(owner)
        process.kill()
        process.wait()
    assert is_dead(owner)


def test_the_owners_of_one_process_differ_and_are_alive() -> None:
    one, two = new_owner(), new_owner()
    assert one != two
    assert not is_dead(one)


def test_nothing_is_known_about_owners_on_other_machines() -> None:
    machine, namespace, pid, started, token = new_owner().split("/")
    assert not is_dead("/".join(("other", namespace, pid, "1", token)))
    assert not is_dead("/".join((machine, "other", pid, "1", token)))
    assert not is_dead("/".join(("-", "-", pid, started, token)))
    assert not is_dead("/".join((machine, namespace, pid, "-", token)))
    assert not is_dead("an owner of another kind")
    # The number of a process can be used again.
    assert is_dead("/".join((machine, namespace, pid, "1", token)))
