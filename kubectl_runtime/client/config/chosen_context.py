"""Turns one context of a kubeconfig into the arguments of a `Config`, with the checks of kubectl 1.32.

Only the parts that the context uses are checked: a server, one way to log in, readable files, complete plugins. A token
or token file outranks a user name, a user name outranks a client certificate, and an exec plugin or auth provider ranks
last. Every error names file and field, and never shows a value that may be a secret.

The checks are stricter than kubectl's in one point: the context's user and cluster must exist, and the cluster must
have a server. Without these, kubectl continues anonymously or with localhost:8080.
"""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from kubectl_runtime.client.config.auth import Credentials, FixedCredentials, bearer, checked_header
from kubectl_runtime.client.config.checks import Impersonation, check_server_name, checked_url, faults
from kubectl_runtime.client.config.kubeconfig import Cluster, Entry, Kubeconfig, User, decoded
from kubectl_runtime.client.config.proxies import check_proxy
from kubectl_runtime.core.base.errors import AuthError, ConfigError

EXTENSION = "client.authentication.k8s.io/exec"
"""The cluster extension that is passed to the exec plugin as `config`."""
_PROXY_SCHEMES = ("http://", "https://", "socks5://")


def settings_of(kubeconfig: Kubeconfig, context: str | None = None) -> dict[str, Any]:
    """The arguments of a `Config` for the named context, or the current one. Raises ConfigError. Opens no connection
    and runs no plugin."""
    if context is not None and not isinstance(context, str):
        raise ConfigError(f"context must be the name of a context, a str, not {type(context).__name__}")
    name = context or kubeconfig.current_context
    cluster, user, namespace = _select(kubeconfig, name)
    origin = f"context {name!r} of {', '.join(kubeconfig.files)}"
    content, who = cluster.content, user.content
    ca_file = _file(cluster, "certificate-authority", content.certificate_authority, content.certificate_authority_data)
    certificate = _file(user, "client-certificate", who.client_certificate, who.client_certificate_data)
    has_certificate = bool(certificate or who.client_certificate_data)
    # As in kubectl, a key without a certificate is ignored.
    key = _file(user, "client-key", who.client_key, who.client_key_data) if has_certificate else None
    _check_cluster(cluster, tls=bool(ca_file or content.certificate_authority_data or has_certificate))
    _check_user(user, has_certificate)
    return {
        "cluster_url": content.server or "",
        "default_namespace": namespace,
        "origin": origin,
        "ca_file": ca_file,
        "ca_data": decoded(content.certificate_authority_data, cluster.place),
        "client_certificate_file": certificate,
        "client_certificate_data": decoded(who.client_certificate_data, user.place),
        "client_key_file": key,
        "client_key_data": decoded(who.client_key_data, user.place) if has_certificate else None,
        "insecure_skip_tls_verify": bool(content.insecure_skip_tls_verify),
        "tls_server_name": content.tls_server_name or None,
        "auth": _auth(user, cluster, ca_file, outranked=bool(
            who.token or who.token_file or who.username or who.password or has_certificate)),
        "token": who.token or None,
        "token_file": _absolute(user, who.token_file),
        "username": (who.username or "") if who.username or who.password else None,
        "password": who.password,
        "impersonate": _impersonation(user),
        "proxy_url": content.proxy_url or None,
        "compression": not content.disable_compression,
    }


def _select(kubeconfig: Kubeconfig, name: str) -> tuple[Entry[Cluster], Entry[User], str]:
    where = ", ".join(kubeconfig.files)
    known = ", ".join(sorted(filter(None, kubeconfig.contexts))) or "none"
    if not name:
        raise ConfigError(f"{where}: no current-context is set: name one of the known contexts ({known}), "
                          "or run `kubectl config use-context`")
    context = kubeconfig.contexts.get(name)
    if context is None:
        raise ConfigError(f"{where}: there is no context {name!r}; known contexts: {known}")
    cluster_name, user_name = context.content.cluster or "", context.content.user or ""
    cluster = kubeconfig.clusters.get(cluster_name)
    if cluster is None:
        raise ConfigError(f"{where}: context {name!r} refers to cluster {cluster_name!r}, which is not defined "
                          f"({context.place}.cluster)")
    user = kubeconfig.users.get(user_name) if user_name else Entry(User(), context.place, context.folder)
    if user is None:
        raise ConfigError(f"{where}: context {name!r} refers to user {user_name!r}, which is not defined "
                          f"({context.place}.user)")
    return cluster, user, context.content.namespace or "default"


def _check_cluster(cluster: Entry[Cluster], *, tls: bool) -> None:
    """Check the settings that a Config would refuse as well, with messages that name the field. `tls`: whether there is
    TLS data."""
    content = cluster.content
    if not content.server:
        _refuse(cluster, "server", "is missing")
    checked_url(content.server, f"{cluster.place}.server", tls=tls)
    if content.tls_server_name:
        check_server_name(content.tls_server_name, cluster.place)
    proxy = content.proxy_url
    if proxy and not proxy.startswith(_PROXY_SCHEMES):
        _refuse(cluster, "proxy-url", f"must begin with one of {', '.join(_PROXY_SCHEMES)}")
    if proxy:
        check_proxy(proxy, f"{cluster.place}.proxy-url")
    if content.insecure_skip_tls_verify and (content.certificate_authority or content.certificate_authority_data):
        _refuse(cluster, "insecure-skip-tls-verify",
                "is true beside a certificate authority, which it would leave unused: keep one of the two")


def _check_user(user: Entry[User], has_certificate: bool) -> None:
    who = user.content
    if who.token and (who.username or who.password):
        _refuse(user, "token", "is set beside a username or password: keep one of the two")
    try:
        checked_header(bearer(who.token or ""), "the token")
    except AuthError as error:
        _refuse(user, "token", f"cannot be used: {error}")
    try:
        FixedCredentials.basic(who.username or "", who.password or "")
    except AuthError as error:
        _refuse(user, "username", f"and password cannot be used: {error}")
    if has_certificate and not (who.client_key or who.client_key_data):
        _refuse(user, "client-key", "is missing: a client certificate needs both the certificate and its key")
    if who.exec_ is not None and who.auth_provider is not None:
        _refuse(user, "auth-provider", "is set beside an exec plugin: keep one of the two")
    if not who.as_:
        dependent = {"as-uid": who.as_uid, "as-groups": who.as_groups, "as-user-extra": who.as_user_extra}
        for field, value in dependent.items():
            if value:
                _refuse(user, field, "needs a user to act as, in the field as")


def _auth(user: Entry[User], cluster: Entry[Cluster], ca_file: str | None, *, outranked: bool) -> Credentials | None:
    """The exec plugin or auth provider, which is checked in any case; None if the user has neither, or if other
    credentials outrank it."""
    who = user.content
    if who.exec_ is not None:
        # Imported only when needed, like the provider below, since most contexts have neither.
        from kubectl_runtime.client.config.exec_plugin import ExecCredentials, ExecSpec

        spec = ExecSpec.of(who.exec_, f"{user.place}.exec", folder=user.folder, cluster=_exec_cluster(cluster.content),
                           ca_file=ca_file)
        return None if outranked else ExecCredentials(spec)
    if who.auth_provider is None or who.token or who.token_file or who.username or who.password:
        return None
    from kubectl_runtime.client.config.auth_provider import PROVIDERS, AuthProviderCredentials

    name = who.auth_provider.name or ""
    if name not in PROVIDERS:
        _refuse(user, "auth-provider.name", f"is {name!r}: only {' and '.join(PROVIDERS)} are supported: "
                                            "use an exec plugin instead")
    return AuthProviderCredentials(name, {key: value or "" for key, value in
                                          (who.auth_provider.config or {}).items()})


def _exec_cluster(cluster: Cluster) -> dict[str, Any]:
    """The description of the cluster for a plugin, without a CA from a file."""
    told = {
        "server": cluster.server, "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": cluster.certificate_authority_data, "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": next((entry.extension for entry in cluster.extensions or ()
                        if entry is not None and entry.name == EXTENSION), None),
    }
    return {key: value for key, value in told.items() if value}


def _impersonation(user: Entry[User]) -> Impersonation | None:
    who = user.content
    if not who.as_:
        return None
    groups = tuple(group or "" for group in who.as_groups or ())
    extra = {key: tuple(value or "" for value in values or ()) for key, values in (who.as_user_extra or {}).items()}
    for field, problem in faults(who.as_, groups, who.as_uid or "", extra):
        name = next(known for known in _ACTING_AS if field.startswith(known))
        _refuse(user, _ACTING_AS[name] + field.removeprefix(name), problem)
    return Impersonation(who.as_, groups, who.as_uid or "", extra)


_ACTING_AS = {"user": "as", "groups": "as-groups", "uid": "as-uid", "extra": "as-user-extra"}
"""The kubeconfig fields of an Impersonation."""


def _file(entry: Entry[Any], field: str, path: str | None, data: str | None) -> str | None:
    """The absolute path of a file in use, which must be readable; None without a path."""
    absolute = _absolute(entry, path)
    if absolute is None:
        return None
    if data:
        _refuse(entry, field, f"is set beside {field}-data: keep one of the two")
    try:
        with open(absolute, "rb"):
            return absolute
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid path"
        _refuse(entry, field, f"cannot be read: {absolute}: {reason}")


def _absolute(entry: Entry[Any], path: str | None) -> str | None:
    return os.path.normpath(Path(entry.folder, path)) if path else None


def _refuse(entry: Entry[Any], field: str, problem: str) -> NoReturn:
    raise ConfigError(f"{entry.place}.{field} {problem}")
