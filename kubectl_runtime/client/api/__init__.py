"""The verbs: `Client`, `Api`, discovery, paging, watches, subresources."""
