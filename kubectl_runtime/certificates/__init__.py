"""Certificates: an authority made in memory, what it issues, and contexts of servers that use them."""
