"""Dependencies: which objects the runs have read, and which objects are reconciled again when one of these changes."""
