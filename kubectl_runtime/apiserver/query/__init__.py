"""The parameters in a request's query, and their refusals."""
