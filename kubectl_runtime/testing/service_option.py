"""`service_address`: the value of `--webhook-service`, of the commands that run an embedded server."""
from __future__ import annotations

import argparse


def service_address(text: str) -> tuple[str, str]:
    """`NAMESPACE/NAME=https://HOST:PORT`: the Service, and where it is. Raises ArgumentTypeError for anything else."""
    name, equals, address = text.partition("=")
    if not equals or name.count("/") != 1 or not address.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAMESPACE/NAME=https://HOST:PORT")
    return name, address
