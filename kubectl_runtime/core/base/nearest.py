"""The name that was probably meant: for errors about names that there are not."""
from __future__ import annotations

from collections.abc import Iterable


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """Of the names in `known` the one most like `wrong`; None when none is.

    `restartPolicy`, `restart_Policy` and `RestartPolicy` are `restart_policy`, whatever else may be near.
    """
    import difflib  # only errors need it

    names = list(known)
    bare = _bare(wrong)
    same = next((name for name in names if _bare(name) == bare), None)
    if same is not None:
        return same
    near = difflib.get_close_matches(wrong, names, n=1) or difflib.get_close_matches(
        bare, [_bare(name) for name in names], n=1)
    return next((name for name in names if near and near[0] in (name, _bare(name))), None)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """` (did you mean 'restart_policy'?)`, for behind the wrong name in a message; empty when no name is near."""
    found = nearest(wrong, known)
    return f" (did you mean {found!r}?)" if found is not None else ""


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
