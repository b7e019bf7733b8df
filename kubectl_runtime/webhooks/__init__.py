"""Webhooks: admission and conversion, as classes and as a WSGI application. Only the server needs a cluster.

- `handler`: `Admission`, `AdmissionRequest`, `Denied` and the options of a webhook class
- `answering`: reviews in, responses out; the WSGI application
- `configurations`: the manifests of webhooks, and the CA bundles in them
- `server`, `serving_certificates`: `WebhookServer` and its certificates
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
