"""Observability: metrics, health checks, the status page, tracing, and the HTTP server."""
