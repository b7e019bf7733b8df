"""One module per family of verbs; each handler takes the request's context and returns an answer."""
