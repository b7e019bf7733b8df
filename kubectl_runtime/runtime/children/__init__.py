"""Children of an object: one call creates, restores, prunes and reports the objects that the object owns."""
