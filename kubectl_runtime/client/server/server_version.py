"""What an API server says of itself."""
from __future__ import annotations

import msgspec

from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError, problem_of


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `/version`: `major`, `minor` and `git_version`, as texts; what is not told is empty."""

    major: str = ""
    minor: str = ""
    git_version: str = ""

    @classmethod
    def decoded(cls, body: bytes, server: str) -> ServerVersion:
        """The version in an answer's `body`. Raises DecodeError, which names the `server`, for anything else."""
        try:
            return decoded(body, cls)
        except DECODE_FAILURES as error:
            path, problem = problem_of(error)
            raise DecodeError(None, path, f"the answer of {server} to /version cannot be read: {problem}") from None
