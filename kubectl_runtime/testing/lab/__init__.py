"""Fault injection and replay for a user's controllers: `perturb` and `replay`."""
