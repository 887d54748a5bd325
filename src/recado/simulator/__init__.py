"""The simulator: twins of the disk and the network that fail as those do, repeatably. It knows no room."""
