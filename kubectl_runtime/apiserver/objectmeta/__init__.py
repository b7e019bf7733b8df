"""Rules about metadata that hold for every kind."""
