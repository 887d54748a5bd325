"""Nodes that reach each other directly, over TCP."""

from .transport import Tcp as Tcp
