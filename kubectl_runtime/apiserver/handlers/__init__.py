"""Handlers, one module for each family of verbs; each takes the request's context and returns an answer."""
