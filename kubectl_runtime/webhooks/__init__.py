"""Webhooks: admission and conversion, as classes and as a WSGI application. Nothing here needs a cluster.

    handler          `Admission`, `Denied`: what a user writes
    request          `AdmissionRequest[Kind]`: what it is asked
    options          what the class says of its configuration
    configurations   the manifests that follow from it
    answering        review in, answer out: bytes
    difference       the JSON patch of a change; the only user of jsonpatch
    application      the paths, and HTTP

`server` listens, with `serving_certificates`.
"""
from kubectl_runtime.webhooks.application import Application as Application
from kubectl_runtime.webhooks.application import application as application
from kubectl_runtime.webhooks.handler import Admission as Admission
from kubectl_runtime.webhooks.handler import AdmissionRequest as AdmissionRequest
from kubectl_runtime.webhooks.handler import Denied as Denied
from kubectl_runtime.webhooks.handler import Rule as Rule
