"""The HTTP rim: sockets and threads around the sans-I/O core."""
