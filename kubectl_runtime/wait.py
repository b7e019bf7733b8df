"""Waiting in scripts: conditions with a deadline, deletion, stop tokens."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
