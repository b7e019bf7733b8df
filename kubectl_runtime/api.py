"""`Api`, which reads and writes the objects of a kind; entries, lists, retries after conflicts, own writes."""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
