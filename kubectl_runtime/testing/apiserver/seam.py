"""Temporary stand-ins until discovery is there."""
from __future__ import annotations
class discovery:
    @staticmethod
    def respond(registry, request): return None
openapi=discovery
