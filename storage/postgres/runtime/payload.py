"""Documents on their way in and out of a function, within the size limit."""

from __future__ import annotations

from typing import Any

import plpy  # type: ignore[import-not-found]

from apiary.authoring.signature import Signature
from apiary.authoring.values import ValueProblem, canonical, digest, dumps, loads
from apiary.errors import BadArgument, PayloadTooLarge

DEFAULT_MAX_PAYLOAD_BYTES = 4 * 1024 * 1024


def _max_payload_bytes() -> int:
    rows = plpy.execute("SELECT pg_catalog.current_setting('apiary.max_payload_bytes', true) AS v")
    return int(rows[0]["v"] or DEFAULT_MAX_PAYLOAD_BYTES)


MAX_PAYLOAD_BYTES = _max_payload_bytes()  # of this session


def encode_output(signature: Signature, result: Any) -> str:
    """A body's result as JSON text, within the size limit."""
    output = dumps(signature.encode_result(result))
    require_size(output, "result", "store large data in a table and return its key")
    return output


def require_size(text: str, path: str, hint: str) -> None:
    """PayloadTooLarge when a document's text takes more bytes than the limit."""
    if len(text) * 4 <= MAX_PAYLOAD_BYTES:
        return  # no character takes more than four
    size_bytes = len(text.encode())
    if size_bytes > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"{path} takes {size_bytes} bytes, the limit is {MAX_PAYLOAD_BYTES}",
            hint=hint,
            path=path,
            size_bytes=size_bytes,
            limit_bytes=MAX_PAYLOAD_BYTES,
        )


class TextInput:
    """The input of a call as it was sent."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, signature: Signature) -> tuple[dict[str, Any], Any, str]:
        """The arguments, and the document and the digest by which they are recorded."""
        kwargs, document = signature.normalise(read_input(self._text))
        return kwargs, document, digest(canonical(document))


class DocumentInput:
    """The input of a call as its signature has written it in this backend."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self.digest = digest(canonical(document))

    def read(self, signature: Signature) -> tuple[dict[str, Any], Any, str]:
        """As that of `TextInput`: the function gets values of its own."""
        return signature.decode_arguments(self.document), self.document, self.digest


def encode_input(document: Any) -> str:
    """The text of a function's input as it is stored, within the size limit.

    Not what was sent is measured but what is stored: how a client escapes text does not count.
    """
    text = dumps(document)
    require_size(text, "args", "store large data in a table and pass its key")
    return text


def read_input(text: str) -> Any:
    """The document of a function's input."""
    try:
        return loads(text)
    except ValueProblem as problem:
        raise BadArgument(f"args: {problem.message}", path="args") from None
