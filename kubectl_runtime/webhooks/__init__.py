"""Admission and conversion handlers: the place for them; there are none yet."""
