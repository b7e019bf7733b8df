"""From the bytes of a body to JSON values, as the real server decodes them."""
