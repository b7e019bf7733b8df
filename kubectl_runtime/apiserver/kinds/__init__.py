"""The built-in kinds of kube-apiserver 1.36 with its default APIs.

A kind is a row of ``catalog`` that names its strategy. The strategy of most kinds is data: rows of rules and defaults,
which `BuiltinStrategy` (``base``) evaluates; ``rules`` has their form and interpreter. ``typed`` gives JSON the shape
of the real server's typed objects; ``columns`` has the columns of tables.

- ``pod``: Pods, and the pod specs in templates of workloads.
- ``apps``, ``batch``, ``autoscaling``: workloads; Jobs and CronJobs; HorizontalPodAutoscalers.
- ``configuration``, ``namespaces``: ConfigMaps, Secrets and ServiceAccounts; Namespaces and Nodes.
- ``limits``: LimitRanges and ResourceQuotas; requests and limits of Pods.
- ``services``, ``endpoints``, ``networking``: Services, EndpointSlices, Endpoints, Ingresses, NetworkPolicies.
- ``storage``: volumes, claims, and the kinds of storage.k8s.io.
- ``admission``, ``events``: webhook configurations and admission policies; Events.
- ``plain``: kinds whose rules are rows alone, for example Leases, Roles and PriorityClasses.
"""
