"""The exceptions of the library. `except KubeError` catches every error that an API call raises."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
