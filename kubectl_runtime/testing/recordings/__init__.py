"""A recording of a controller, stepped again: see `replay`."""
