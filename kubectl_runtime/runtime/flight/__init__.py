"""The flight recorder: what a controller saw and did, in a file that is bounded, for `kubectl-runtime replay`."""
