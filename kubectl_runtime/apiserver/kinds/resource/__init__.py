"""The kinds of resource.k8s.io."""
