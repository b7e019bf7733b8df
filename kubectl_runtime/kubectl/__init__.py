"""A set of manifests on a server: applied, compared, deleted.

    apply_manifests, diff_manifests, delete_manifests    the three verbs
    manifest_run        what they share: each object tried, failures kept, one deadline
    manifest_set        what is in the set, and in which order
    waiting, readiness  several objects waited for at once, and when each is ready
    differences         two states of an object as a diff
    progress            lines for who watches
    manifest_report     what became of each object
"""
