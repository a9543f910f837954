"""Addresses in header fields: a browser tells every picture and script of a page which search led to it.

So the values of a search come once more, in the ``Referer`` of requests that no rule names, and proxies before this one
repeat the target in fields of their own. What a rule swaps in a target is swapped in those as well.
"""

import re
from collections.abc import Sequence
from typing import Final

from proxy.errors import VaultError
from proxy.redactor import restore
from proxy.redactor.codecs.media import Media
from proxy.redactor.exchange.joined import Joined
from proxy.redactor.redact import query_spots
from proxy.redactor.splice import splice
from proxy.vault.anywhere import own

#: Fields that hold the address of a request, in lower case.
CARRIERS: Final = frozenset({b"referer", b"x-original-url", b"x-rewrite-url", b"x-original-uri", b"x-forwarded-uri"})

#: An absolute or relative address: what stands before its path, its authority, path and query, and the fragment.
ADDRESS: Final = re.compile(rb"(\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://([^/?#]*))?)([^#]*)(#.*)?", re.DOTALL)


def carries(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether any field may hold an address with a query: nearly always not."""
    return any(b"?" in value and name.lower() in CARRIERS for name, value in headers)


async def swapped(joined: Joined, target: bytes) -> bytes:
    """The target with tokens in place of what its operation searches for; without its query where that cannot be."""
    collection = joined.collection
    try:
        spots = query_spots(target, joined.plan.operation.request.query)
        kept = await own(collection, restore.places(spots))
        edits = [
            (spot.start, spot.end, restore.encode(Media.FORM, collection.same_token(spot.field, spot.value)))
            for spot in spots
            if spot.value is not None and spot.value.text and (spot.field, spot.value.text) not in kept
        ]
    except VaultError:
        return target.partition(b"?")[0]
    return splice(target, edits)
