"""The embedded API server: a core without I/O or threads (request in, response or event stream out), and a transport.

`server.ApiServer` is both together; ``kubectl_runtime.testing`` names it for users.

The server around the core:

==========================  ==========================================================================================
``server``                  `ApiServer` starts, stops, restarts, loads manifests; a thread runs the core's clockwork
``credentials``             client certificates and tokens, the kubeconfig with them, and the TLS side of the listener
``transport``               what carries requests: HTTP on sockets, calls in process, a script of faults; and the
                            server's own calls of webhooks
==========================  ==========================================================================================

The core, in the order in which a request meets it (``core``, `ApiCore.handle`, is the way through):

==========================  ==========================================================================================
``wire``                    requests, responses and streams between transport and core; what a path asks for
``context``                 the request as handlers and strategies see it
``access``                  authentication, impersonation, authorization by RBAC, reviews: 401 and 403
``discovery``, ``openapi``  the documents in which the server describes what it serves; health checks
``query``                   the parameters of a request: options, selectors, continue tokens
``encoding``                the bytes of a body as JSON values, read from JSON or YAML as Go does, or from protobuf
``patching``                an object after a JSON patch, a merge patch or a strategic merge patch
``handlers``                one module for each family of verbs and for special subresources
``writes``                  what creates, updates and patches share: admission, the kind's hooks, the stored version
``policies``                admission policies in CEL, Pod security, quotas, warnings of what is not acted on
``webhooks``                which admission webhooks a write calls, with which review, and what their answers mean
``output``                  the form of an answer: JSON, YAML, metadata alone, rows of a table
``errors``                  every refusal
==========================  ==========================================================================================

The rules of objects, and where objects are kept:

==========================  ==========================================================================================
``objectmeta``              rules about metadata, for every kind
``strategy``                the hooks through which a kind has rules of its own
``kinds``                   the built-in kinds: catalog, rules by API group, typed shapes, table columns
``crds``                    CustomResourceDefinitions: the kind, its controller, and the custom resources themselves
``schemas``                 schemas of built-in and custom values: pruning, defaults, validation
``managedfields``           which manager owns which field; server-side apply
``storage``                 the types that are served (`Registry`), the objects and their history (`Storage`), and the
                            `Cluster` that holds both with their lock and the clock
``controllers``             what a cluster's controllers do, run by the core on its clock
``kubelet``                 Pods that run by the rules of a test, without containers; their logs, streams and ports
``loopback``                requests of the server to itself, by controllers and some handlers
==========================  ==========================================================================================

The transport knows ``wire`` and `ApiCore`; nothing in the core knows the transport.
"""
