"""Encodes stored objects as response bodies in the requested form."""
