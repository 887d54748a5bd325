"""The node: configuration, and the assembly of the parts into a broker that runs."""
