"""Which key runs when: the scheduler, the work queue, runs and their failures, own writes."""
