"""What carries requests to the core: sockets (`http`), the simulation (`inprocess`), disturbances (`faults`); and which
answers are compressed on their way."""
