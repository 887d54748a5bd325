"""The broker's model: vhosts, exchanges, queues, consumers, channels. It decides and never waits."""
