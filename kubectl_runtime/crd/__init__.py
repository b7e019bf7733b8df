"""Kinds of one's own: resource classes that can also produce their CustomResourceDefinition."""
