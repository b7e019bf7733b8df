"""Patterns mean what they mean to Go, and what Go's RE2 refuses is refused."""

from __future__ import annotations

import pytest

from kubectl_runtime.schema.patterns import PatternError, compiled


@pytest.mark.parametrize("pattern", [
    "(", ")", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"(?P<x>a)(?P=x)", "(?>a)", "a++", "a**", "a{2}{3}",
    "a{1001}", "a{3,2}", "*a", "+", "a|*", "[", "[a", "[z-a]", "\\", r"\y", r"\Z", r"[[:wrong:]]", r"\pQ", "(?#c)",
    "(?U)a", r"\p{Greek}", r"[\b]", "(?a)b", r"\x1"])
def test_what_go_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="error parsing regexp"):
        compiled(pattern)


@pytest.mark.parametrize(("pattern", "fits", "misfits"), [
    ("^a$", "a", "a\n"), (r"^a\z", "a", "a\n"), ("(?m)^a$", "b\na\n", "ba"), ("^(?m:a$)", "a\nb", "b\na"),
    ("(?i)abc", "ABC", "AB"), ("a(?i)b|c", "aB", "AB"), ("(a(?i)b)c", "aBc", "aBC"), (r"^\d$", "7", "\u0667"),
    (r"^\w+$", "a_1", "\u00e9"), (r"^\s$", " ", "\v"), (r"^\Qa.b\E$", "a.b", "axb"), ("^[[:alpha:]]+$", "Ab", "a1"),
    (r"^\pL+$", "\u00e9A", "a1"), (r"^\P{L}+$", "12", "1a"), (r"^[^\d]$", "a", "1"), (r"^\x{e9}$", "\u00e9", "e"),
    (r"^[\w.-]+$", "a.b-c", "a b"), ("^[]a]$", "]", "b"), ("^[a&&b]$", "&", "c"), ("^a{,2}$", "a{,2}", "aa"),
    ("^{$", "{", "}"), ("(?P<name>a)b", "ab", "a"), ("(?<name>a)b", "ab", "a"), (r"^[\D]$", "a", "1"), ("", "x", None),
    ("^(?:[a-z]+|)$", "", "1"), ("a{2,}?b", "aab", "ab"), ("(?s)a.b", "a\nb", "ab"), ("^[[]$", "[", "]")])
def test_what_go_takes_means_the_same(pattern: str, fits: str, misfits: str | None) -> None:
    assert compiled(pattern).search(fits)
    assert misfits is None or not compiled(pattern).search(misfits)
