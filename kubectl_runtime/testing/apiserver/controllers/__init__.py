"""Controllers that a bare API server lacks, as step functions that the core runs on its clock."""
