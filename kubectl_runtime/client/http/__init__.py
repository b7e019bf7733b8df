"""How a request travels: middleware, retries, failures, adapters, sessions, TLS, streams."""
