"""Shows what a new version of an operator would do to a cluster, without doing it.

- `Snapshot`: the objects read from a cluster; it can be saved and used for many plans
- `plan`: runs a program in a simulated copy of the cluster until nothing changes, and returns a `Plan`
- `Plan`: the changes that the program would make, its failures, and what is unknown
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
