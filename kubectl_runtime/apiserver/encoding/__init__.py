"""From the bytes of a body to JSON values, and to an object of its kind, as the real server decodes them."""
