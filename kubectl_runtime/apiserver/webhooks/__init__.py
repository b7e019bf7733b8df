"""Calls of admission and conversion webhooks."""
