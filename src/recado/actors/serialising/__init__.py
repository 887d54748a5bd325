"""Messages as bytes and back, for other nodes and for the disk.

catalogue   which classes there are, by name      serialisers   how their values are written and read
faults      what is wrong with a message that is not
"""
