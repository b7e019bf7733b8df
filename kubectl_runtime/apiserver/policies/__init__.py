"""What judges or changes a write besides webhooks: admission policies in CEL, Pod security, quotas.

``configured`` has the admission policies in force, ``judging`` evaluates them; ``admission`` asks ``podsecurity`` and
``quotas``; ``unobeyed`` warns of what is stored and not acted on.
"""
