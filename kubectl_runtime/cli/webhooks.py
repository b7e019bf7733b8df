"""`kubectl-runtime webhooks MODULE:NAME --service NAMESPACE/NAME`: prints webhook configurations as YAML.

MODULE:NAME is the WSGI application, such as `app = webhooks.application({...})`. The output contains the webhook
configurations of the application's classes. For each conversion between classes it also contains the part of the
CustomResourceDefinition that refers to the webhook. `kubectl apply --server-side --field-manager=NAME -f -` merges that
part into the definition.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kubectl_runtime.cli.places import CommandError, Place, UsageError, checked_name, hint, imported, place
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.webhooks.answering import Application
from kubectl_runtime.webhooks.configurations import Target, configurations


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("app", type=place, metavar="MODULE:NAME", help="the application, such as my_package.hooks:app")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--service", type=_target(Target.service), dest="target", metavar="NAMESPACE/NAME[:PORT]",
                       help="the Service through which the API server calls the webhooks (port 443 by default)")
    where.add_argument("--url", type=_target(Target.url), dest="target", metavar="URL",
                       help="https://HOST:PORT of a webhook server outside of the cluster")
    parser.add_argument("--name", type=checked_name, metavar="NAME", help="the configurations' name, the same as "
                        "WebhookServer(configuration=NAME) in the program, if set: under two names each webhook is "
                        "called twice (default: the name of the Service or the module)")
    parser.add_argument("--ca-file", type=Path, metavar="FILE", help="a PEM file with the CA that the API server "
                        "trusts (default: the webhook server itself or cert-manager sets it)")
    parser.add_argument("--annotation", action="append", default=[], type=_annotation, metavar="KEY=VALUE",
                        help="an annotation of the configurations, such as cert-manager.io/inject-ca-from=shop/hooks; "
                             "may be repeated")


def run(options: argparse.Namespace) -> int:
    """Print the manifests and return the exit status. Raises CommandError."""
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    print(documents_to_yaml(manifests(options), sort_keys=False, width=120), end="")
    return 0


def manifests(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the manifests. Raises CommandError."""
    app = _application(imported(options.app.module), options.app)
    target: Target = options.target
    name = options.name or target.name or options.app.module.rpartition(".")[2].replace("_", "-")
    try:
        ca_bundle = options.ca_file.read_bytes() if options.ca_file is not None else b""
    except OSError as error:
        raise CommandError(f"{options.ca_file}: {error.strerror}") from None
    if options.ca_file is not None and b"-----BEGIN CERTIFICATE-----" not in ca_bundle:
        raise CommandError(f"{options.ca_file} holds no PEM certificate")
    try:
        found = configurations(app, name, target, ca_bundle=ca_bundle, annotations=dict(options.annotation))
    except RequestError as error:
        raise CommandError(str(error)) from None
    if not options.name:
        of = "Service" if target.name else "module"
        print(f"note: the configurations are called {name}, as the {of} is. Where the program applies its own, under "
              "the name in WebhookServer(configuration=NAME), use --name NAME: under two names each webhook is called "
              "twice", file=sys.stderr)
    for mount, handler in app.handlers.items():
        if getattr(handler, "crd_name", "") is None:
            print(f"note: {mount} is left out: its versions are texts, so its CustomResourceDefinition is not known",
                  file=sys.stderr)
    return found


def _application(module: ModuleType, where: Place) -> Application:
    found = getattr(module, where.name, None)
    if isinstance(found, Application):
        return found
    known = [name for name, value in vars(module).items() if isinstance(value, Application)]
    if found is None:
        raise UsageError(f"{where.module} has no {where.name}{hint(where.name, known, 'applications')}")
    of = "a dict: put webhooks.application(...) around it" if isinstance(found, Mapping) else type(found).__name__
    raise UsageError(f"{where} must be a webhook application, app = webhooks.application({{...}}), not {of}")


def _target(make: Any) -> Any:
    def parse(text: str) -> Target:
        try:
            found: Target = make(text)
        except RequestError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return found
    return parse


def _annotation(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value
