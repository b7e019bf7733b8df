"""What an API server says of itself."""
from __future__ import annotations

import msgspec

from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.meta.problems import DecodeError


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
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise DecodeError(None, "$", f"{server} gives no version that can be read at /version: {error}") from None
