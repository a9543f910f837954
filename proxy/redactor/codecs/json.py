"""One JSON value as it stands in a body, read and written (RFC 8259)."""

from collections.abc import Callable

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


def reader(body: bytes) -> Callable[[bytes], Value | None]:
    """What reads the values of one body: as ``read``, without looking for escapes where the whole body has none."""
    return read if b"\\" in body else _plain


def _plain(raw: bytes) -> Value | None:
    """``read`` for a value without escapes: a string's text is what stands between its quotes."""
    if raw[0] == 0x22:
        return Value(raw[1:-1].decode())
    return None if raw[0] == 0x6E else Value(raw.decode(), True)


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
