"""Nodes that reach each other directly, over TCP."""

from .transport import TcpTransport as TcpTransport
