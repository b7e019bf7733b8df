"""Watches and stores, with and without a controller, and the events of a watch."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
