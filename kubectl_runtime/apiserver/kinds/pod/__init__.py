"""Pods and the pod specs in templates of workloads: defaults, validation, allowed updates."""
