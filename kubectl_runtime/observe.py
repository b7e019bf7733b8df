"""Observing a program: metrics, health, logs, the debug page, and observers."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
