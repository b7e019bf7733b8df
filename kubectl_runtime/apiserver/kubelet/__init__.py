"""The stand-in for scheduler and kubelets: Pods run and answer as a test specifies. No container ever runs.

A test uses ``kubelet`` (`Kubelet`: rules, logs, functions that answer exec and attach), ``rules`` (when containers
start, become ready and end) and ``sessions`` (logs and their followers, exec, attach).

The controller ``kubelet`` runs Pods. ``pod_loop`` tracks which Pods are due, and makes the writes. ``pod_machine``,
``container_machine`` and ``nodes`` are pure functions: the next step of a Pod, the next step of a container, and the
choice and status of a Node.
"""
