"""Kubernetes objects, references, parameters, requests and errors as values.

This package does no I/O, starts no threads, and imports no third-party package except msgspec.
"""
