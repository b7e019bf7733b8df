"""The embedded API server: a core without I/O or threads (request in, response or event stream out), and a transport.

`server.ApiServer` combines core and transport; ``kubectl_runtime.testing`` exports `ApiServer`. The transport uses
``wire`` and `ApiCore`; the core does not know the transport.

Around the core:

- ``server``: `ApiServer` starts, stops, restarts and loads manifests; its thread calls the core when work is due.
- ``credentials``: client certificates, tokens, kubeconfigs, and the TLS side of the listener.
- ``transport``: HTTP on sockets, in-process calls, the fault script, and the server's calls to webhooks.

The core, in the order in which a request passes through it (``core``, `ApiCore.handle`):

- ``wire``: requests, responses and streams between transport and core; reads the request target from the path.
- ``context``: the request as handlers and strategies see it.
- ``access``: authentication, impersonation, RBAC authorization, access reviews.
- ``discovery``, ``openapi``: documents that describe the served API; health checks.
- ``query``: request parameters: options, selectors, continue tokens.
- ``encoding``: decodes a body from JSON, YAML or protobuf.
- ``patching``: JSON patch, merge patch, strategic merge patch.
- ``handlers``: one module for each family of verbs, and modules for special subresources.
- ``writes``: the steps that create, update and patch share: admission, the kind's hooks, storing the version.
- ``policies``: admission policies in CEL, Pod security, quotas, warnings about fields that this server ignores.
- ``webhooks``: selects the admission webhooks of a write, builds their reviews and evaluates their answers.
- ``output``: writes an answer as JSON or YAML, as metadata only, or as table rows.
- ``errors``: the Status objects of all refusals.

The rules for objects, and their storage:

- ``objectmeta``, ``names``: metadata rules that hold for every kind; validation of names.
- ``strategy``: the hooks that define a kind's own rules.
- ``kinds``: the built-in kinds: catalog, rules by API group, typed shapes, table columns.
- ``crds``: CustomResourceDefinitions, their controller, and custom resources.
- ``schemas``: schemas of built-in and custom values: pruning, defaults, validation.
- ``managedfields``: field ownership and server-side apply.
- ``storage``: the served types (`Registry`), the objects and their history (`Storage`), and the `Cluster` that holds
  both together with the lock and the clock.
- ``controllers``: the cluster's controllers; the core runs them on its clock.
- ``kubelet``: runs Pods without containers, by rules that a test sets; serves their logs, streams and ports.
- ``loopback``: requests that controllers and handlers make to their own server.
"""
