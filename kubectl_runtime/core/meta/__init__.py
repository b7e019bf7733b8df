"""What Kubernetes calls things: groups, versions, kinds, references, metadata, selectors."""
