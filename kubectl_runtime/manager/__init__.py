"""The top of the runtime: many controllers in one process, and which of several processes works."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
