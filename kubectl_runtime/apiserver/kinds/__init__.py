"""The built-in kinds of kube-apiserver 1.36 with its default APIs.

A kind is a row of the catalog that names its strategy. The strategy of most kinds is data: rows of rules and defaults.

======================  ==============================================================================================
``catalog``             `builtin_types()`: names, verbs, short names, subresources and rules of every kind
``rules``               the form of the rows, their interpreter, and the checks that rows name
``base``                `BuiltinStrategy`, which evaluates the rows of a kind; selectors and addresses
``typed``               the shape that the real server's typed objects give to JSON
``columns``             the columns of tables
``pod``                 Pods, and the pod specs in templates of workloads
``apps``, ``batch``     workloads; Jobs and CronJobs
``autoscaling``         HorizontalPodAutoscalers
``configuration``       ConfigMaps, Secrets, ServiceAccounts
``namespaces``          Namespaces and Nodes
``limits``              LimitRanges and ResourceQuotas; requests and limits of Pods
``services``            Services, with the allocation of addresses and node ports
``endpoints``           EndpointSlices and Endpoints
``networking``          Ingresses, IngressClasses, NetworkPolicies, IPAddresses, ServiceCIDRs
``storage``             volumes, claims, and the kinds of storage.k8s.io
``scheduling``          PriorityClasses, RuntimeClasses, PodDisruptionBudgets
``rbac``                Roles and bindings
``admission``           webhook configurations and admission policies
``certificates``        CertificateSigningRequests
``events``              Events, which two API groups serve
``plain``               Leases, FlowSchemas, PriorityLevelConfigurations, APIServices, the kinds of resource.k8s.io
======================  ==============================================================================================

Events of events.k8s.io are those of the core group in another form.
"""
