"""Request handlers, one module for each family of verbs. A handler takes the request context and returns an answer."""
