"""What a client remembers of its server: its version, its warnings, and what it was found not to do."""
