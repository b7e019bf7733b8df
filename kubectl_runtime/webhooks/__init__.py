"""Webhooks: admission and conversion, as classes and as a WSGI application. Nothing here needs a cluster.

    handler          `Admission`, `Denied`: what a user writes
    request          `AdmissionRequest[Kind]`: what it is asked
    options          what the class says of its configuration
    configurations   the manifests that follow from it
    answering        review in, answer out: bytes
    difference       the JSON patch of a change; the only user of jsonpatch
    application      the paths, and HTTP

`WebhookServer` listens, with certificates.
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
