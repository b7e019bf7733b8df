"""How a request travels as far as the wire: middleware, retries, failures, deadlines, TLS. Does not import requests."""
