"""The embedded API server: a core without I/O or threads (request in, response or event stream out), and a transport.

`server.ApiServer` combines them; ``kubectl_runtime.testing`` exports it. The transport uses ``wire`` and `ApiCore`; the
core does not know the transport.

Around the core:

- ``server``: `ApiServer` starts, stops, restarts and loads manifests; a thread drives the core by the clock.
- ``credentials``: client certificates, tokens, kubeconfigs, and the TLS side of the listener.
- ``transport``: HTTP on sockets, calls in process, the fault script, and the server's own calls of webhooks.

The core, in the order in which a request passes through it (``core``, `ApiCore.handle`):

- ``wire``: requests, responses and streams between transport and core; the target that a path names.
- ``context``: the request as handlers and strategies see it.
- ``access``: authentication, impersonation, RBAC authorization, access reviews.
- ``discovery``, ``openapi``: documents that describe what the server serves; health checks.
- ``query``: the parameters of a request: options, selectors, continue tokens.
- ``encoding``: decodes a body from JSON, YAML or protobuf.
- ``patching``: JSON patch, merge patch, strategic merge patch.
- ``handlers``: one module for each family of verbs and for special subresources.
- ``writes``: what creates, updates and patches share: admission, the kind's hooks, the stored version.
- ``policies``: admission policies in CEL, Pod security, quotas, warnings about fields that nothing acts on.
- ``webhooks``: which admission webhooks a write calls, with which review, and what their answers mean.
- ``output``: the form of an answer: JSON, YAML, metadata only, table rows.
- ``errors``: every refusal.

The rules of objects, and their storage:

- ``objectmeta``, ``names``: rules about metadata that hold for every kind; the validation of names.
- ``strategy``: the hooks through which a kind has its own rules.
- ``kinds``: the built-in kinds: catalog, rules by API group, typed shapes, table columns.
- ``crds``: CustomResourceDefinitions, their controller, and custom resources.
- ``schemas``: schemas of built-in and custom values: pruning, defaults, validation.
- ``managedfields``: field ownership and server-side apply.
- ``storage``: the served types (`Registry`), the objects and their history (`Storage`), and the `Cluster` that holds
  both with their lock and the clock.
- ``controllers``: the cluster's controllers, run by the core on its clock.
- ``kubelet``: Pods that run by a test's rules, without containers; their logs, streams and ports.
- ``loopback``: requests that controllers and handlers make to their own server.
"""
