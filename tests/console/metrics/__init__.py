"""Tests of `recado.console.metrics`."""
