"""Several replicas share the objects of their controllers: shards, a Lease each, and who works for which."""
