"""Admission and conversion webhooks, as the server calls them."""
