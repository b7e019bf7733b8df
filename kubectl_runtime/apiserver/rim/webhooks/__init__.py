"""How the server reaches webhooks: over HTTPS, or in process."""
