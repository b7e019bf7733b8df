"""Objects and their parts: metadata, owners, conditions, quantities, view classes, and dynamic objects."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
