"""What differs between interpreters and processes: annotations, contexts of threads, locks across a fork."""
