"""HTTP messages as the redactor sees them: raw bytes, nothing interpreted."""

from typing import NamedTuple

#: Header fields in the order and spelling they came; repeated names stay repeated.
RawHeaders = tuple[tuple[bytes, bytes], ...]


class Request(NamedTuple):
    """A whole request of a matched operation; ``body`` is free of transfer and content codings."""

    method: str
    target: bytes  #: request target exactly as received
    headers: RawHeaders
    body: bytes


class Answer(NamedTuple):
    """A whole answer of the application; ``body`` is free of transfer and content codings."""

    status: int
    headers: RawHeaders
    body: bytes


def header(headers: RawHeaders, name: bytes) -> bytes | None:
    """The first field value of that lower-case name, or ``None``."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None
