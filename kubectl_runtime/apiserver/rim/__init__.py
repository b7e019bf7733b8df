"""What carries requests to the core: sockets (`http`), the simulation (`inprocess`), disturbances (`faults`)."""
