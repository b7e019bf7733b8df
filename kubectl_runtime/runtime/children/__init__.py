"""What an object owns: made, kept, pruned and reported by one call."""
