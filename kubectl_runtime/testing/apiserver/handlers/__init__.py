"""One module per family of verbs; each handler takes the core and the request's context and returns an answer."""
