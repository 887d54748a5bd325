"""Messages as bytes and back, for other nodes and for the disk.

serialisers   how values are written and read     catalogue      which classes there are, by name
tagged        values that say what they are       exceptions     which exceptions
scalars       those without parts                 instances      those of classes
lossless      values that need no tags            declarations   whether values are of their declared types
faults        what is wrong with a message that is not
"""
