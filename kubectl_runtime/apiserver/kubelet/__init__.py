"""What stands in for the kubelet: the logs and commands of Pods, as a test gives them. No container ever runs.

    kubelet          what was given for which container
    container_log    one container's log, and those who follow it
    sessions         one exec or attach: messages of channels, the function that answers
"""
