"""Managers: several controllers in one process, leader election and sharding between processes."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
