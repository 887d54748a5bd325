"""The broker core: vhosts, exchanges, queues, consumers and channels. Pure computation without I/O."""
