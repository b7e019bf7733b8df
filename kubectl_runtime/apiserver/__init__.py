"""The embedded API server: a sans-I/O core (request in, response or event stream out, clock injected) under a thin rim.

`server.ApiServer` is both together; ``kubectl_runtime.testing`` names it for users.

The rim, and what makes a server of it:

==========================  ==========================================================================================
``server``, ``tls``         `ApiServer`: starts, stops, restarts, is mounted in a simulation; its certificates
``loading``                 manifests and objects into a server
``kubeconfig``              lets clients in: credentials, and the file with them
``housekeeper``             one thread: the clockwork of the core on real time
``starting``                how a server answers that is not ready yet
``rim``                     what carries requests: sockets (http), a simulation (inprocess), disturbances (faults);
                            and those of the server to webhooks (webhooks)
==========================  ==========================================================================================

The core, in the order in which a request meets it (``core``, `ApiCore.handle`, is the way through):

==========================  ==========================================================================================
``wire``                    requests, responses and streams, as rim and core exchange them
``route``, ``context``      what a path asks for; the request as handlers see it
``access``                  who asks, and whether he may: 401 and 403, RBAC, impersonation, reviews
``discovery``, ``health``,  what the server tells of itself
``openapi``
``query``                   what the query says: options, selectors, continue tokens
``encoding``                from the bytes of a body to JSON values: JSON and YAML as Go reads them, repeated fields;
                            and to an object of its kind
``patching``                the object after a JSON patch, merge patch or strategic merge patch
``handlers``                one module for each family of verbs and for special subresources
``writes``, ``admission``   what creates, updates and patches share, up to the stored version; what may forbid one
``webhooks``                who is asked about a write, what with, and what the answer means; how a write begins anew
                            that was overtaken meanwhile
``output``                  the form of the answer: JSON, YAML, metadata only, rows of a table
``errors``                  every refusal
==========================  ==========================================================================================

What holds for which object, and where objects are:

==========================  ==========================================================================================
``objectmeta``              rules about metadata, for every kind
``strategy``                the hooks with which a kind has rules of its own
``kinds``                   the built-in kinds: catalogue, rules by API group, typed shapes, table columns
``crds``                    CustomResourceDefinitions: the kind, its controller, and the custom resources themselves
``schemas``                 shapes of built-in and custom values: pruning, defaults, checks
``managedfields``           who owns which field; server-side apply
``storage``                 the types that are served (registry), the objects and their history (storage), and what
                            all parts share (cluster): these two, the lock over them, the clock, chance, the way back in
``controllers``             what a cluster's controllers do, run by the core on its clock
``kubelet``                 Pods that run, by rules of a test, without containers; their logs, exec and attach
``loopback``                how these, and some handlers, make requests of their own
==========================  ==========================================================================================

The rim knows ``wire`` and `ApiCore`; nothing in the core knows the rim.
"""
