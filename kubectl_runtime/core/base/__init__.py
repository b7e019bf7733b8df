"""What everything stands on: clock, stop token, errors, status, wire names, the observer."""
