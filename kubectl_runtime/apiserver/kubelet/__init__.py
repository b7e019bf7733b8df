"""The stand-in for scheduler and kubelets: Pods live by rules, and answer as a test says. No container ever runs.

A test uses ``kubelet`` (`Kubelet`: rules, logs, functions that answer exec and attach), ``rules`` (the times and ends
of containers) and ``sessions`` (logs and their followers, exec, attach). The controller ``kubelet`` runs Pods:
``pod_loop`` has the Pods that are due and the writes; ``pod_machine``, ``container_machine`` and ``nodes`` are pure
functions for the next step of a Pod, the next step of a container, and the choice and status of a Node.
"""
