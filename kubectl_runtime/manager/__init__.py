"""The top of the runtime: many controllers in one process, and which of several processes works."""
