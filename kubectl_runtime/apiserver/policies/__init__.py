"""Admission without webhooks: admission policies in CEL, Pod security, quotas.

``configured`` reads the admission policies, and ``judging`` evaluates them. ``admission`` applies ``podsecurity`` and
``quotas``, and warns about kinds on which the server does not act.
"""
