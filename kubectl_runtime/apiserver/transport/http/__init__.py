"""HTTP on sockets: threads around the sans-I/O core.

``reader`` parses HTTP/1.1 requests and encodes answers. ``connection`` contains the listener, the thread of each
connection, and the thread that notices when the client of an idle watch leaves. ``websockets`` reads and writes the
frames of websockets.
"""
