"""Turning changes into reconcile requests: watches, their subscribers, predicates, triggers and trigger sources."""
