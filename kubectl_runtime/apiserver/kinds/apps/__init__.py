"""The group apps: workloads of replicas."""
