"""HTTP on sockets: threads around the sans-I/O core.

=============  ========================================================================================================
module         what it is
=============  ========================================================================================================
reader         HTTP/1.1 requests from bytes, and answers to bytes
connection     one connection, one thread: requests in turn, watches as chunks; a thread that notices when the client
               of an idle watch leaves
websockets     frames and messages of a connection that became a websocket
listener       the listening socket, the threads, and their end
=============  ========================================================================================================
"""
