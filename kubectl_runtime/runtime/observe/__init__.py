"""Observability of a program: metrics, health checks, and the HTTP server for both."""
