"""One JSON value as it stands in a body, read and written (RFC 8259)."""

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.value import Value

_TEXT = msgspec.json.Decoder(str)
_encode = msgspec.json.Encoder().encode


def read(raw: bytes | memoryview) -> Value | None:
    """The value that a raw JSON text spells; ``None`` for ``null``.

    A string gives its decoded text; anything else keeps its exact spelling. ``raw`` is one value without white space
    round it, out of a document that was validated. ``VaultError(AMBIGUOUS_JSON)`` for half of a surrogate pair.
    """
    first = raw[0]
    if first == 0x22:
        text = _decoded(raw)
        if text is None:
            raise VaultError(
                Code.AMBIGUOUS_JSON,
                "A string of the body is ambiguous: it holds half of a surrogate pair. Send whole characters.",
            )
        return Value(text, False)
    if first == 0x6E:
        return None
    return Value(bytes(raw).decode(), json=True)


def write(value: Value) -> bytes:
    """The value as raw JSON: text in quotes, in UTF-8, with only the escapes that JSON demands.

    ``VaultError(VALUE_UNFIT)`` for text that is no Unicode (half of a surrogate pair).
    """
    if value.json:
        return value.text.encode()
    try:
        return _encode(value.text)
    except UnicodeEncodeError:
        pass  # The error holds the text; it must not become the context of ours.
    raise VaultError(Code.VALUE_UNFIT, "A value holds half of a surrogate pair and cannot be written as JSON.")


def _decoded(raw: bytes | memoryview) -> str | None:
    try:
        return _TEXT.decode(raw)
    except msgspec.DecodeError:
        return None
