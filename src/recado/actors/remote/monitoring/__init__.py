"""Relations between actors of two nodes, heartbeats, and the detection of failed nodes."""
