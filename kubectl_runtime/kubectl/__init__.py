"""Applies, compares and deletes sets of manifests, and drains nodes.

- `apply`: `apply_manifests`, `diff_manifests`, `delete_manifests`
- `manifest_run`: the code that these three share: the order of a set, one deadline, collected failures
- `readiness`: when objects are ready, and waiting for several at once
- `report`: the outcome of each object, and the progress lines
- `drain`: `drain`, as `kubectl drain`
"""
