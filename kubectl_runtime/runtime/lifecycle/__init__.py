"""The engine that starts and stops a controller or a Manager, with its signals, stop tokens and log."""
