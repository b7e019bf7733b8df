"""The built-in kinds of kube-apiserver 1.36 with its default APIs.

Each kind is a row in ``catalog``, which names the kind's strategy. Most strategies are data: rows of rules and
defaults, which `BuiltinStrategy` (``base``) evaluates. ``rules`` defines the form of these rows and interprets them.
``typed`` gives JSON the shape of the real server's typed objects. ``columns`` defines the columns of tables.

- ``pod``: Pods, and the pod specs in templates of workloads.
- ``apps``, ``batch``, ``autoscaling``: workloads; Jobs and CronJobs; HorizontalPodAutoscalers.
- ``configuration``, ``namespaces``: ConfigMaps, Secrets and ServiceAccounts; Namespaces and Nodes.
- ``limits``: LimitRanges and ResourceQuotas; the requests and limits of Pods.
- ``services``, ``endpoints``, ``networking``: Services, EndpointSlices, Endpoints, Ingresses, NetworkPolicies.
- ``storage``: volumes, claims, and the kinds of storage.k8s.io.
- ``admission``, ``events``: webhook configurations and admission policies; Events.
- ``plain``: kinds that need only rows, for example Leases, Roles and PriorityClasses.
"""
