"""The simulator: a disk, a network and a schedule that fail as real ones do, repeatably. It imports no other package."""
