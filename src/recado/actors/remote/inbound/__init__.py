"""Frames from other nodes: checked, deduplicated, and delivered to a mailbox or refused.

handler         the path of a frame to its mailbox           refusals   refused frames, theirs and ours
deduplication   which frames were settled before             warmup     for actors that are not spawned yet
controls        messages between the nodes themselves        backpressure   full mailboxes and full disks
"""
