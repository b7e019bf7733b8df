"""Kubernetes objects, references, parameters, requests and errors as values.

Pure values and functions: no I/O, no threads are started here, and msgspec is the only third-party package.
"""
