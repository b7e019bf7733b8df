"""The group autoscaling."""
