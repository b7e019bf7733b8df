"""The built-in kinds of kube-apiserver 1.36 with its default APIs: a folder for each API group.

=====================  ===============================================================================================
``catalog``            `builtin_types()`: names, verbs, short names, categories, subresources of every kind
``strategies``         which rules belong to which kind
``base``               what all strategies of built-in kinds share
``typed``              the shape that the real server's typed objects give to JSON
``columns``            what tables show of them
``pod``                Pods, and the pod specs in templates of workloads
``core``, ``apps``,    defaults, validation, status and generation rules of the kinds of a group
``batch``, ...
=====================  ===============================================================================================
"""
