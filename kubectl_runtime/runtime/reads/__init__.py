"""Dependencies of objects on the objects that their runs read, and the runs that a change triggers."""
