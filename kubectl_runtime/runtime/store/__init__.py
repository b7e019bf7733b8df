"""Storing the objects of a watch: the reflector, the store, the store's writer and its indexes."""
