"""Impersonation: reads which user a request acts as, and checks whether the authenticated user may impersonate it.

The modes that apply to the impersonated user are tried in the order of this list, until a mode allows the request. If
every mode refuses the request, the answer is the refusal by the mode that was tried first.

- ``arbitrary-node``: impersonates a node. The headers must name only the user.
- ``serviceaccount``: impersonates a service account. The headers must name only the user.
- ``user-info``: impersonates any other user.
- legacy: impersonates any user. The authenticated user needs the verb ``impersonate`` on the impersonated user and
  groups (in the core API group), and on the uid and the extra values.

In the first three modes the authenticated user needs the verb ``impersonate-on:MODE:VERB`` on the request target, and
the verb ``impersonate:MODE`` on the impersonated user, uid, groups and extra values, in the API group
authentication.k8s.io. The real server has a further mode for the node on which a service account's Pod runs. That mode
does not exist here, because this server's tokens name no node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

from kubectl_runtime.apiserver.access.authn import ANONYMOUS, MASTERS, UNAUTHENTICATED, User, with_authenticated
from kubectl_runtime.apiserver.access.rbac import SERVICE_ACCOUNT, Attributes, Decision, refusal
from kubectl_runtime.apiserver.errors import StatusError, bad_request
from kubectl_runtime.apiserver.names import dns_subdomain_errors
from kubectl_runtime.apiserver.wire import HttpRequest

Authorize = Callable[[Attributes], Decision]

AUTHENTICATION = "authentication.k8s.io"
NODE = "system:node:"
_EXTRA = "impersonate-extra-"


@dataclass(frozen=True, slots=True)
class _Mode:
    name: str  # "" is the legacy mode

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"


def wanted_user(request: HttpRequest) -> User | None:
    """The user that the Impersonate headers name, without implied groups; None without such headers.

    A repeated header arrives as one header with its values joined by commas. Raises a 400 if uid, group or extra is
    given without a user.
    """
    if not any(key.startswith("impersonate-") for key in request.headers):
        return None
    name = request.header("impersonate-user")
    uid = request.header("impersonate-uid")
    groups = tuple(_values(request.header("impersonate-group"))) if "impersonate-group" in request.headers else ()
    extra = tuple((unquote(key[len(_EXTRA):]), tuple(_values(value)))
                  for key, value in sorted(request.headers.items()) if key.startswith(_EXTRA))
    if name:
        return User(name, uid, groups, extra)
    if uid or groups or extra:
        raise bad_request(f"requested {_go_user(User('', uid, groups, extra))} without impersonating a user name")
    return None


def _values(text: str) -> list[str]:
    return text.split(", ")  # joined headers are separated by ", "; a comma without a blank belongs to a value


def _go_user(user: User) -> str:
    """A user as the real server's message prints it."""
    groups = "[]string{" + ", ".join(map(json.dumps, user.groups)) + "}" if user.groups else "[]string(nil)"
    entries = [f"{json.dumps(key)}:[]string{{{', '.join(map(json.dumps, values))}}}" for key, values in user.extra]
    extra = "map[string][]string{" + ", ".join(entries) + "}" if entries else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"{user.name}", UID:{json.dumps(user.uid)}, Groups:{groups}, Extra:{extra}}}'


def impersonate(request: HttpRequest, attributes: Attributes, authorize: Authorize) -> User:
    """The impersonated user; the authenticated user if there is none. Raises a 403 if impersonation is not allowed."""
    wanted = wanted_user(request)
    if wanted is None:
        return attributes.user
    first: StatusError | None = None
    for mode in _modes(wanted):
        try:
            _check(mode, wanted, attributes, authorize)
        except StatusError as error:
            first = first or error
        else:
            return _complete(mode, wanted)
    assert first is not None  # the legacy mode always applies
    raise first


def _modes(wanted: User) -> Iterator[_Mode]:
    by_name_alone = not (wanted.uid or wanted.groups or wanted.extra)
    if node_name(wanted.name):
        if by_name_alone:
            yield _Mode("arbitrary-node")
    elif service_account(wanted.name):
        if by_name_alone:
            yield _Mode("serviceaccount")
    else:
        yield _Mode("user-info")
    yield _Mode("")


def _check(mode: _Mode, wanted: User, attributes: Attributes, authorize: Authorize) -> None:
    if mode.name:
        _require(replace(attributes, verb=f"impersonate-on:{mode.name}:{attributes.verb}"), authorize)
    for needed in _needed(mode, wanted, attributes.user):
        if mode.name and needed.resource == "groups" and needed.name in ("", MASTERS):
            what = f"the {needed.name} group" if needed.name else "the empty string group"
            raise refusal(needed, f"impersonating {what} is not allowed")
        _require(needed, authorize)


def _require(attributes: Attributes, authorize: Authorize) -> None:
    decision = authorize(attributes)
    if not decision.allowed:
        raise refusal(attributes, decision.reason)


def _needed(mode: _Mode, wanted: User, requestor: User) -> Iterator[Attributes]:
    """The permissions that the requestor needs, field by field."""
    group = AUTHENTICATION if mode.name else ""
    account = service_account(wanted.name)
    node = node_name(wanted.name) if mode.name else ""
    if account:
        yield Attributes(requestor, mode.verb, group, "serviceaccounts", namespace=account[0], name=account[1])
    elif node:
        yield Attributes(requestor, mode.verb, group, "nodes", name=node)
    else:
        yield Attributes(requestor, mode.verb, group, "users", name=wanted.name)
    if wanted.uid:
        yield Attributes(requestor, mode.verb, AUTHENTICATION, "uids", name=wanted.uid)
    for name in wanted.groups:
        yield Attributes(requestor, mode.verb, group, "groups", name=name)
    for key, values in wanted.extra:
        for value in values:
            yield Attributes(requestor, mode.verb, AUTHENTICATION, "userextras", key, name=value)


def _complete(mode: _Mode, wanted: User) -> User:
    """The impersonated user, with the groups that its name implies."""
    groups = wanted.groups
    account = service_account(wanted.name)
    if account and not groups:
        groups = service_account_groups(account[0])
    if mode.name and node_name(wanted.name):
        groups = ("system:nodes",)
    if wanted.name == ANONYMOUS.name and UNAUTHENTICATED not in groups:
        groups = (*groups, UNAUTHENTICATED)
    return with_authenticated(User(wanted.name, wanted.uid, groups, wanted.extra))


def service_account(username: str) -> tuple[str, str] | None:
    """The namespace and name in a service account's user name; None for other user names."""
    parts = username.split(":")
    if not username.startswith(SERVICE_ACCOUNT) or len(parts) != 4 or not parts[2] or not parts[3]:
        return None
    return parts[2], parts[3]


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups that every service account in a namespace has."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


def node_name(username: str) -> str:
    """The node name in a node's user name; "" for other user names."""
    name = username.removeprefix(NODE)
    return name if name != username and not dns_subdomain_errors(name) else ""
