"""The kinds of certificates.k8s.io."""
