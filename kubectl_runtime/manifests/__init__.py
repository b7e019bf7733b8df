"""Manifests: reads text, files and folders into plain objects, as kubectl does, and writes objects as text.

``scalars`` has Go's rules for YAML scalars, and the errors. ``yaml_text`` converts one YAML document to JSON values and
back; only this module uses PyYAML. ``documents`` reads text, files and folders into documents and objects.
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
