"""Example programs that use only the public API of recado."""
