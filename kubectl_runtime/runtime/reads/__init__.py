"""Dependencies of objects on what their runs read, and the runs that follow a change."""
