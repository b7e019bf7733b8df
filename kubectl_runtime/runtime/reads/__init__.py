"""Dependencies: the objects that runs have read, and the objects that run again when such an object changes."""
