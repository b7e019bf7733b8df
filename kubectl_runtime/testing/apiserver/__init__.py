"""The sans-I/O core of the embedded API server: request in, response or event stream out; the clock is injected."""
