"""Certificates: an in-memory certificate authority, the certificates that it issues, and TLS contexts of servers."""
