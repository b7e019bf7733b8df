"""Admission and conversion webhooks, as classes and as a WSGI application.

- `handler`: `Admission`, `AdmissionRequest`, `Denied` and the options of a webhook class
- `answering`: answers reviews, as functions and as a WSGI application
- `configurations`: the manifests that register webhooks in a cluster, and the CA bundles in these manifests
- `server`, `serving_certificates`: `WebhookServer` and its certificates
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
