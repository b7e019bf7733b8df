"""Encodes stored objects as the body of an answer, in the requested form."""
