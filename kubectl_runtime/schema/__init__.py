"""Structural OpenAPI v3 schemas: validation, defaulting and pruning of values, and the errors of fields."""
