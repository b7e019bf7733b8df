"""Pods and the pod specs in the templates of workloads: defaults, validation, what updates may change."""
