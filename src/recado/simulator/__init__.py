"""The simulator: a disk, a network and a schedule with faults that a seed makes reproducible.

It imports no other package.
"""
