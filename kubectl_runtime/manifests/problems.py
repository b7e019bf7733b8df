"""What is wrong with a manifest, and where: `YamlError` of one document, `ManifestError` of a source."""

from __future__ import annotations

from kubectl_runtime.core.base.errors import KubeError


class YamlError(ValueError):
    """A YAML document that cannot be read. The text is that of kubectl and of the API server (``yaml: line 3: ...``),
    whose decoder counts lines in its own way; it may quote the document.

    `problem` is the text without that line, `line` and `column` are the true place, from 1; 0 if it is not known.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0, *, named_line: int = 0) -> None:
        super().__init__(f"yaml: line {named_line}: {problem}" if named_line else f"yaml: {problem}")
        self.problem = problem
        self.line = line
        self.column = column


class ManifestError(KubeError, ValueError):
    """A source of manifests that cannot be read; the text names source, document and line, and says why.

    `problem` is the reason alone, which may quote the document. `document` and `line` count from 1 in the source,
    `column` in the line; 0 where it is not known.

    >>> apply_manifests(client, "kind: [", field_manager="me")
    Traceback (most recent call last):
        ...
    ManifestError: text: line 2: ...
    """

    def __init__(self, source: str, problem: str, *, document: int = 0, line: int = 0, column: int = 0) -> None:
        parts = [f"document {document}"] if document else []
        parts += [f"line {line}"] if line else []
        super().__init__(f"{source}{', ' if parts else ''}{', '.join(parts)}: {problem}")
        self.source = source
        self.problem = problem
        self.document = document
        self.line = line
        self.column = column
