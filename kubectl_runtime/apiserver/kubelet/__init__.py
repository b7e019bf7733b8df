"""The stand-in for scheduler and kubelets: Pods live by rules, and answer as a test says. No container ever runs.

What a test sets up:

    kubelet             `Kubelet`: rules, logs, and functions that answer exec and attach
    rules               the rules for Pods: which Pods, and the times and ends of their containers
    sessions            logs and their followers; one exec or attach: channels, and the function that answers

The controller ``kubelet``, which runs Pods:

    pod_loop            which Pods are due, and the writes that follow
    pod_machine         the next step of a Pod, with phase and conditions (pure)
    container_machine   the next step of a container (pure)
    nodes               which node a Pod gets, and what a Node reports (pure)
"""
