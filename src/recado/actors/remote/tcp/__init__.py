"""The TCP transport: nodes connect to each other directly."""

from .transport import TcpTransport as TcpTransport
