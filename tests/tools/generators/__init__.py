"""Generators of the package's data: each module holds one transform; tests/tools/generate.py runs them."""
