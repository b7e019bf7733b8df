"""The core group, but for Pods."""
