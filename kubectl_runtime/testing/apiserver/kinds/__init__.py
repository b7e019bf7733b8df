"""The built-in kinds of kube-apiserver 1.36 with its default APIs; one module per group or concern.

=====================  ==============================================================================================
catalog                `builtin_types()`: names, verbs, short names, categories, subresources of every kind
strategies             which rules belong to which kind
typed                  the shape that the real server's typed objects give to JSON
base                   what all strategies of built-in kinds share
pods, workloads, ...   defaults, validation, status and generation rules of the kinds
columns                what tables show of them
=====================  ==============================================================================================
"""
