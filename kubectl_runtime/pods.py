"""Pods and Nodes: logs, exec, attach, port-forward, drain."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
