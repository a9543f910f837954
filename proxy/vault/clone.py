"""A copy of a record under a new key.

The filter has to find one record: a copy needs a primary key of its own, and the request has room for one. The copy is a new
record, created now, with a history of its own. It keeps the ``expires_at`` of its source unless the request says otherwise, so
that copying does not lengthen the life of what had to end. Attachments are not copied: their content may be large, and what
the caller waits for is one commit; upload them again, or move them.
"""

from collections.abc import Awaitable, Callable

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.record import Draft, Record
from proxy.vault.closing import Closing, refuse_of_rules
from proxy.vault.records import Records
from proxy.vault.sent_back import meant, refuse_masks, refuse_stated
from proxy.vault.update import merged
from proxy.vault.write import create, place_of_key

#: Finds the records that the filter of a clone means; at most so many of them. Raises ``CANNOT_OPEN`` for one that does not open.
Sources = Callable[[int], Awaitable[list[Record]]]


async def clone(records: Records, sources: Sources, update_with: Draft, by: str, closing: Closing) -> list[Record]:
    """Store the copy; what it is now, alone in its list. ``update_with`` is what the copy has in place of the source's values.

    Raises ``VaultError``: ``SCHEMA_OF_RULES``; ``NO_MATCH``; ``UNPROCESSABLE`` when several records match, or no new key is
    given; ``RECORD_EXISTS`` when the key is used; and what ``sources`` raises.
    """
    refuse_of_rules(records)
    found = await sources(2)
    if not found:
        raise VaultError(Code.NO_MATCH, f"No record of {records.name!r} matches the filter.")
    if len(found) > 1:
        raise _unusable(
            records, update_with, "Several records match the filter, and one key cannot serve all of their copies."
        )
    if update_with.key is None:
        raise _unusable(records, update_with, "The copy needs a key of its own.")
    source = found[0]
    refuse_stated((update_with,))
    update_with = meant(records, update_with, source, seen=True)
    refuse_masks(records, (update_with,))
    copy = msgspec.structs.replace(merged(source, update_with), key=update_with.key, copied=True)
    return await create(records, (copy,), by, closing)


def _unusable(records: Records, update_with: Draft, why: str) -> VaultError:
    detail = Detail(place_of_key(records, update_with), why)
    return VaultError(Code.UNPROCESSABLE, "A clone makes one copy of one record, under a new primary key.", (detail,))
