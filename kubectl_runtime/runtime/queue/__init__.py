"""Which key runs when: the scheduler, the work queue, backoff of keys, how many workers."""
