"""Manifests: text, files and folders to plain objects, as kubectl reads them, and back to text.

``scalars`` has Go's rules for YAML scalars and the errors, ``yaml_text`` one YAML document to JSON values and back (the
only user of PyYAML), ``documents`` the way from text, files and folders to documents and objects.
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
