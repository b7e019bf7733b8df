"""A user's controller again and again, each time with something going wrong: see `perturb`."""
