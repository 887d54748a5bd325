"""Whether the nodes are there that something binds us to: `watch` says who hears what, `remote_watcher` asks."""
