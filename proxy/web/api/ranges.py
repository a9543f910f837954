"""Parts of a file: what the fields of a request ask for (RFC 9110, section 14)."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.errors import Code, VaultError

#: One range of bytes. Several at once are answered with the whole, as section 14.2 allows.
_ONE: Final = re.compile(
    r"[ \t]*bytes[ \t]*=[ \t]*(?:(\d{1,18})-(\d{0,18})|-(\d{1,18}))[ \t]*", re.ASCII | re.IGNORECASE
)


class Span(NamedTuple):
    """The bytes from ``start`` to before ``stop``."""

    start: int
    stop: int


def asked(headers: Mapping[str, str], size: int, etag: str) -> Span | None:
    """The part of a content of so many bytes that is asked for, or ``None`` for the whole.

    What is no range of bytes is ignored, and so is one that counts only if the content is another one (``If-Range``). Raises
    ``VaultError`` (RANGE_UNSATISFIABLE) for a range that begins behind the end.
    """
    found = _ONE.fullmatch(headers.get("Range", ""))
    if found is None or headers.get("If-Range", etag).strip() != etag:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    else:
        start = int(first)
        stop = min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None  # invalid, and so ignored (section 14.1.1)
    if start >= size or stop == start:
        raise VaultError(Code.RANGE_UNSATISFIABLE, f"The file has {size} bytes, and the range begins behind them.")
    return Span(start, stop)
