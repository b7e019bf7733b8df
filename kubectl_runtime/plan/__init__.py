"""What a new version of an operator would do to a cluster, before it does it.

    Snapshot    what was read of a cluster; it can be saved, and planned against again and again
    plan        runs a program in a simulated copy of the cluster until nothing moves, and says what that changed
    Plan        what came out
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
