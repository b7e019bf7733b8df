"""Custom kinds: resource classes that also produce their CustomResourceDefinition."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
