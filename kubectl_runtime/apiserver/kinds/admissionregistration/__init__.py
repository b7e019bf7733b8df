"""The group admissionregistration.k8s.io."""
