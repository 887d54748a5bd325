"""Actors that are started on another node, or go there; `unheard` takes back what nobody waits for."""
