"""Bodies that tell changes instead of values: JSON Patch (RFC 6902) and SCIM PATCH (RFC 7644,
section 3.5.2).

The path beside a value says which field it is, so the selectors of an object find nothing in them
and every value would pass. Where the rule says nothing of them, such a body of a write is refused.
"""

import re
from functools import lru_cache
from typing import Final

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders, header
from proxy.redactor.rules import Operation

_TYPES: Final = re.compile(rb"(?i)\s*[^;,]*json-patch")
_OPERATION: Final = re.compile(rb'"op(?:eration)?s?"\s*:', re.IGNORECASE)
_PLACE: Final = re.compile(rb'"(?:path|from|value)"\s*:', re.IGNORECASE)


@lru_cache(maxsize=256)
def _is_patch(declared: bytes | None) -> bool:
    return declared is not None and _TYPES.match(declared) is not None


def refuse_patch(
    operation: Operation, headers: RawHeaders, body: bytes, *, understood: bool
) -> None:
    """Raise ``VaultError(UNREADABLE_BODY)`` when the JSON body of a matched request is a patch
    document.

    By its type it always is. ``understood``: the rule found protected places in it; where it found
    none, a body that looks like a list of operations is taken for one as well, because applications
    accept it as plain JSON.
    """
    if _is_patch(header(headers, b"content-type")) or (
        not understood and _OPERATION.search(body) and _PLACE.search(body)
    ):
        raise VaultError(
            Code.UNREADABLE_BODY,
            f"The request matches {operation.label} and carries a patch document (a list of "
            "operations), which rules cannot "
            "follow yet: send the changed members themselves.",
        )
