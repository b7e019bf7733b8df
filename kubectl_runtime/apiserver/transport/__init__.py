"""The transport of the server: HTTP (`http`), a simulation (`inprocess`), faults, compression, calls of webhooks."""
