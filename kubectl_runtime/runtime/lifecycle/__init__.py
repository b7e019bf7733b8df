"""What ends a controller: signals, the wait for its runs, the end of its threads, its last words."""
