"""Streams of bytes: a container's log, and the websockets of exec, attach and port-forward.

    logs          a log as bytes, text or lines; followed until a stop token
    handshake     from a request to a websocket's socket, over the client's own connections
    frames        bytes to frames and back, by websocket-client
    websocket     one websocket: a thread that owns the socket, messages in and out
    inbox         where its messages go
    channels      what the messages of one websocket are divided into
    process       exec and attach
    forwarding    port-forward
"""
