"""The server as an adapter of the client, without sockets and threads."""
