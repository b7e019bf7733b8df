"""The arguments of `Api` calls: the options of each verb, patches, selectors."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
