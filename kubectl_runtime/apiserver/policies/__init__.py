"""Admission policies in CEL: the configured ones, how a request is judged by them, and how they change an object."""
