"""Structural OpenAPI v3 schemas: validation, defaulting and pruning of values, and what is wrong with a field."""
