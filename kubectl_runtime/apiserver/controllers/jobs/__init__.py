"""Jobs: their Pods, how they are counted, and their end; what is left of them after a time."""
