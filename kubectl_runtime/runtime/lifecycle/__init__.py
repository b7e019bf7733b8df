"""How a controller and a Manager stop and end: one engine, its signals, its stop tokens, its log."""
