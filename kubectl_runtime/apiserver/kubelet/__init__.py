"""What stands in for scheduler and kubelets: Pods live as rules say, and answer as a test says. No container ever runs.

What a test gives:

    kubelet             the door: rules, and what was given for which container
    pod_rules           the rules for Pods: which there are, and what they come to for one Pod
    pod_rule            one rule: which Pods, and what becomes of them
    behaviour           what they come to: times and ends of each container
    container_log       one container's log, and those who follow it
    sessions            one exec or attach: messages of channels, the function that answers

The controller ``kubelet``, which runs Pods:

    pod_loop            what is to be looked at, and when
    pod_memory          since when the parts of a Pod are as they are
    pod_machine         what a Pod does next (pure)
    container_machine   what a container does next (pure)
    pod_status          phase and conditions from the containers' statuses (pure)
    node_choice         which node a Pod gets (pure)
    node_status         what a Node reports (pure)
    pod_actions         what comes of it is written
"""
