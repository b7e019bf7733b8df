"""Watch events into a store: the reflector, the store, its writer and its indexes."""
