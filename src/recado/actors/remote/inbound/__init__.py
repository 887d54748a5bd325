"""What comes from other nodes: it is checked, then posted to a cell, or refused.

inbound    the way in                             refusals   what breaks the rules, and who is told
replay     which frames were settled before       returned   what we sent, and nobody took
early      for actors that are about to start     slowing    for mailboxes that are full
controls   what nodes say to each other           storing    for disks that are
"""
