"""How a kind is named: group, version, kind, resource, scope, and the order of versions."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
