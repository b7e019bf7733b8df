"""A list, then changes, for ever: the watcher, its state machine, its backoff and its log."""
