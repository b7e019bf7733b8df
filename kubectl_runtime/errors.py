"""The exceptions of the library. `except KubeError` catches all that a call of the API raises."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
