"""The caller's own words: what a request holds in the clear, as an application may repeat it in a page.

Only for pages in which a rule has every token restored (``restore: anywhere``). A token that the caller wrote into the request
in one of the usual forms comes back as the text it is. Forms cannot be completed, so errors go by another rule (``error_answers``).
"""

import re
from collections.abc import Iterable
from itertools import islice
from urllib.parse import unquote_to_bytes

from proxy.redactor.message import Request

#: Tokens looked for in one request, and bytes gone through for that.
_MOST = 2000
_BYTES = 256 * 1024 * 1024

_ESCAPE = re.compile(rb"\\(?:u00([0-7][0-9A-Fa-f])|([/\"\\]))")


class Words:
    """Asked only when a page holds tokens that the exchange does not know."""

    def __init__(self, request: Request) -> None:
        parts = [request.target, *(value for _, value in request.headers), request.body]
        raw = b"\n".join(parts)
        plain = _ESCAPE.sub(_character, raw)
        spaced = raw.replace(b"+", b" ")
        self._forms = (raw, plain, unquote_to_bytes(plain), unquote_to_bytes(spaced))

    def without(self, tokens: Iterable[str]) -> list[str]:
        """The tokens that the request does not hold, neither as they are nor with JSON's escapes or percent-encoded.

        At most so many as can be looked for in a tenth of a second; what is left counts as held.
        """
        most = min(_MOST, _BYTES // (1 + sum(map(len, self._forms))))
        return [token for token in islice(tokens, most) if not self._hold(token.encode("utf-8", "surrogatepass"))]

    def _hold(self, token: bytes) -> bool:
        return any(token in form for form in self._forms)


def _character(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 16)]) if match[1] else match[2]
