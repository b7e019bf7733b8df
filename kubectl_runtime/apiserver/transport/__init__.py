"""The server's transports, HTTP (`http`) and a simulation (`inprocess`), with fault injection and webhook calls."""
