"""The HTTP rim: sockets and threads around the sans-I/O core.

=============  ========================================================================================================
module         what it is
=============  ========================================================================================================
reader         HTTP/1.1 requests from bytes
messages       answers to bytes
connection     one connection, one thread: requests in turn, watches as chunks
websockets     frames and messages of a connection that became a websocket
reaper         one thread that notices when the client of an idle watch has gone
listener       the listening socket, the threads, and their end
=============  ========================================================================================================
"""
