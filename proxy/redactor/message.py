"""HTTP messages as the redactor sees them: raw bytes, nothing interpreted."""

from collections.abc import Callable
from typing import Final

import msgspec

#: Header fields in the order and spelling they came; repeated names stay repeated.
RawHeaders = tuple[tuple[bytes, bytes], ...]


class Request(msgspec.Struct, frozen=True, gc=False):
    """A whole request of a matched operation; ``body`` is free of transfer and content codings."""

    method: str
    target: bytes  #: request target exactly as received
    headers: RawHeaders
    body: bytes


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole answer of the application; ``body`` is free of transfer and content codings."""

    status: int
    headers: RawHeaders
    body: bytes


def header(headers: RawHeaders, name: bytes) -> bytes | None:
    """The first field value of that lower-case name, or ``None``."""
    size = len(name)
    for key, value in headers:
        if len(key) == size and key.lower() == name:
            return value
    return None


class Spellings(dict[bytes, int]):
    """What field names mean to somebody, by their spelling: a look-up instead of a case fold for each request. Bounded."""

    MOST: Final = 4096
    LONGEST: Final = 64  #: bytes of a name that is kept

    def __init__(self, meaning: Callable[[bytes], int]) -> None:
        super().__init__()
        self._meaning = meaning  #: of a name in lower case

    def __missing__(self, name: bytes) -> int:
        meaning = self._meaning(name.lower())
        if len(self) >= self.MOST:
            self.clear()
        if len(name) <= self.LONGEST:
            self[name] = meaning
        return meaning
