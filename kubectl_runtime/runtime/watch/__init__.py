"""A list, then its changes: the watcher, its state machine, its backoff and its log."""
