"""Authentication, impersonation and authorization of requests.

`Access` checks each request. `reviews` answers SubjectAccessReview, TokenReview and the other review kinds.
"""

from __future__ import annotations

from kubectl_runtime.apiserver.access.access import Access, AuthorizationMode, Tokens, as_user, users_by_token
from kubectl_runtime.apiserver.access.authn import ADMIN, User
from kubectl_runtime.apiserver.access.rbac import Attributes, Decision

__all__ = ["ADMIN", "Access", "Attributes", "AuthorizationMode", "Decision", "Tokens", "User", "as_user",
           "users_by_token"]
