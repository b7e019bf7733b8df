"""Recordings of a Kubernetes API server: replayed, compared, made anew. tests/tools/record.py is the command."""
