"""Values of options that several commands have: `duration`, and `service_address` for `--webhook-service`."""
from __future__ import annotations

import argparse

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.godurations import GoDuration


def duration(text: str) -> float:
    """The seconds of a Go duration (`15s`, `5m0s`, `0`). Raises ArgumentTypeError for other text and below 0."""
    try:
        found = GoDuration.parse(text).seconds
    except RequestError:
        found = -1.0
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 15s or 1m30s")
    return found


def service_address(text: str) -> tuple[str, str]:
    """`NAMESPACE/NAME=https://HOST:PORT`: the Service, and where it is. Raises ArgumentTypeError for anything else."""
    name, equals, address = text.partition("=")
    if not equals or name.count("/") != 1 or not address.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAMESPACE/NAME=https://HOST:PORT")
    return name, address
