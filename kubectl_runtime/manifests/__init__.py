"""Manifests: text, files and folders to plain objects, as kubectl reads them, and back to text.

=============  =======================================================================================================
``scalars``    what a YAML scalar is: Go's rules, which are neither YAML 1.1's nor 1.2's
``composer``   one YAML document to JSON values (the only module besides ``writer`` that imports PyYAML)
``documents``  a text to its documents: JSON values one after the other, or YAML documents between ``---`` lines
``files``      files, folders and standard input to documents
``objects``    documents to Kubernetes objects: the items of a List one by one
``sources``    all of these together: whatever somebody has manifests in, to objects and where each stands
``writer``     values to YAML that Go's readers and PyYAML read back as they were
``problems``   the errors, with where they stand
=============  =======================================================================================================
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
