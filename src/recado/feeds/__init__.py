"""Feeds: publish and subscribe that is fast like a volatile channel and remembers like a table.

The core (vector, block, packet, views, layer, stack, member, layers) is pure: it is given what happened and
the time, and answers with what is to be done; `boundary` is all that crosses. After "Persistent message
channels for fault-tolerant distributed systems" by Jorge Morgado and Luís Rodrigues.
"""
