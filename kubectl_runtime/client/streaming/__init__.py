"""Streams of bytes: a container's log, and the websockets of exec, attach and port-forward."""
