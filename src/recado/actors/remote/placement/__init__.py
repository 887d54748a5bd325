"""Placement of actors on other nodes: creating them there, and moving them."""
