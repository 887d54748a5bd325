"""The figures of Rodrigo de Castro Michelassi's slides "Servidor AMQP".

The server is written in C and has a thread per connection. It ran in a virtual machine (VirtualBox, Ubuntu 22.04,
3 GB of memory). A shell script started the consumers, then the publishers one after the other; each publisher
connects, publishes one message and disconnects. The slides have three kinds of figures:

- CPU: plots of `top`, user time of the whole machine, with the terminals of the clients. The values are only
  in the text.
- Memory: read with `free`, but not shown.
- Network: a capture of port 5672 on the loopback interface.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capture:
    """The whole run, as Wireshark counted it."""

    bytes: int
    packets: int
    seconds: float


# The capture without clients has as many packets as the one with 10. Without a client nothing is sent to the
# port, so it cannot be what its heading says; it is repeated here as printed.
CAPTURES = {
    0: Capture(38_146, 387, 6),
    10: Capture(37_948, 384, 6),
    100: Capture(355_441, 3_624, 42),
}

# Shares of the publishers added until then, and CPU of the machine in percent: "about 90 % in the first iteration,
# then about 40 %"; "about 90 % during some 40 publishers, then about 40 %".
CPU_COURSES = {
    10: ((1 / 7, 90.0), (2 / 7, 40.0), (1.0, 40.0)),
    100: ((1 / 7, 90.0), (4 / 7, 90.0), (5 / 7, 40.0), (1.0, 40.0)),
}
CPU_WITHOUT_CLIENTS_PERCENT = 30.0  # "often below 30 %"

# In the words of the slides it did not support 50, for example, but something between 30 and 40.
CONSUMERS_REFUSED_COUNT = 50
