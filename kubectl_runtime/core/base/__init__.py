"""The basis of all other modules: clock, threads, errors, backoff, wire names, guarded calls, the observer
interface."""
