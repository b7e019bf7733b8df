"""The built-in kinds of kube-apiserver 1.36 with its default APIs.

A kind is a row of `catalog` that names its strategy. The strategy of most kinds is data: rows of rules and defaults,
which `BuiltinStrategy` (``base``) evaluates; ``rules`` has their form and interpreter. ``typed`` gives JSON the shape
of the real server's typed objects, ``columns`` has the columns of tables, ``pod`` has Pods and pod specs. The other
modules have the kinds of one subject each.
"""
