"""Names and metadata of Kubernetes: groups, versions, kinds, references, metadata, selectors."""
