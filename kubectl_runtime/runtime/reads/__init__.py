"""What runs read, and what follows when that changes."""
