"""The basis of all other modules: clock, stop token, errors, status, wire names, the observer."""
