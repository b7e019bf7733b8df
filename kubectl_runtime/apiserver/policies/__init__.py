"""Admission besides webhooks: admission policies in CEL, Pod security, quotas.

``configured`` has the admission policies in force, ``judging`` evaluates them; ``admission`` applies ``podsecurity``
and ``quotas``, and warns about kinds that nothing acts on.
"""
