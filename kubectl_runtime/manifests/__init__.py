"""Manifests: reads text, files and folders into plain objects, as kubectl does, and writes objects as text.

``scalars`` implements Go's rules for YAML scalars and defines the errors. ``yaml_text`` converts one YAML document to
JSON values and back; only ``yaml_text`` uses PyYAML. ``documents`` reads text, files and folders into documents and
objects.
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
