"""Rows as records: opened together, or taken from those that were opened lately."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proxy.errors import CannotOpen, Code, VaultError
from proxy.model.record import Action, Record
from proxy.offload import busy, give_way, in_thread, strides
from proxy.storage.rows import Past, Row
from proxy.vault.body import RecordBody
from proxy.vault.collection import LONG
from proxy.vault.records.repository import Records
from proxy.vault.seal import OpenValues
from proxy.vault.table_state import Opening, Sequencer, opening_of

#: Rows that are opened between two turns of the event loop.
OPENED = 16
#: No records are known.
NOTHING: Final[Mapping[int, tuple[Record, Any]]] = MappingProxyType({})


async def open_records(
    records: Records, rows: Sequence[Row], lately: Mapping[int, tuple[Record, Any]] = NOTHING
) -> list[Record]:
    """The records of rows, in order; one that does not open is reported and left out.

    The event loop runs between parts. ``lately``: records that are known, by their ids.
    """
    if records.primary is None and not lately:
        lately = await _collected(records, rows)
    opened: list[Record] = []
    for count, row in enumerate(rows, 1):
        if (before := lately.get(row.rid)) is not None:
            opened.append(before[0])
            continue
        try:
            long = len(row.body) > LONG
            opened.append(await in_thread(records.open, row) if long else records.open(row))
        except CannotOpen:  # it is reported
            pass
        if count % OPENED == 0 and busy():
            await give_way()
    return opened


async def _collected(records: Records, rows: Sequence[Row]) -> dict[int, tuple[Record, Any]]:
    """Return those of the rows that the proxy has collected, and that open together, as records."""
    opened: dict[int, tuple[Record, Any]] = {}
    for some in strides(rows, OPENED):
        for row, content in zip(some, open_together(records, some, named=True), strict=True):
            if content is None or records.collection.key_hash(content[1]) != row.key:
                continue  # what is wrong with it is found as it is opened by itself
            fields, eras = records.contents(RecordBody(dict(content[0])), content[1])
            times = row.created_at, row.updated_at, row.expires_at
            record = Record(
                *(row.rid, content[1], fields, row.version),
                *(*times, Action.CREATE),
                eras=eras,
                in_doubt=row.staged > 0,
            )
            opened[row.rid] = record, None
        if len(some) == OPENED and busy():
            await give_way()
    return opened


def open_together(
    records: Records, rows: Sequence[Row], *, named: bool
) -> Sequence[OpenValues | None]:
    """The values of rows that the proxy has collected, opened in one go at a third of the price;
    ``None`` for each that has to be opened by itself.
    """
    if records.primary is not None or any(len(row.body) > LONG for row in rows):
        return [None] * len(rows)
    return records.collection.sealer.open_page(rows, named=named)


def shown_lately(
    records: Records, form: object, rows: Sequence[Row]
) -> Mapping[int, tuple[Record, Any]]:
    """The records of these rows with what was made of them for a page lately, while all is as it
    was then.

    ``form``: what renders them, the same where it gives the same; ``None``: nothing is known.
    """
    if form is None:
        return NOTHING
    collection, lately = records.collection, dict[int, tuple[Record, Any]]()
    edition = collection.sealer.edition
    young, old = collection.opened.openings(collection, edition)
    again: list[Opening] = []
    for row in rows:
        if (before := young.get(row.rid)) is None and (before := old.get(row.rid)) is not None:
            again.append(before)
        if before is not None and before[0] == row and before[1] is form:
            lately[row.rid] = before[4]
    if again:
        collection.opened.remember(collection, edition, again)
    return lately


def remember_shown(
    records: Records, form: object, rows: Sequence[Row], rendered: Sequence[tuple[Record, Any]]
) -> None:
    """Have records known as just rendered, but for those with attachments."""
    if form is None or not rendered:
        return
    collection, of = records.collection, {row.rid: row for row in rows}
    how = form, None, ()
    openings = [
        opening_of(row := of[one[0].rid], how, one, 4 * len(row.body))
        for one in rendered
        if not one[0].attachments
    ]
    collection.opened.remember(collection, collection.sealer.edition, openings)


def present_version(records: Records, row: Row, *, needed: bool) -> Record | None:
    """The record as it is; ``None`` for one that does not open and is not needed.

    Raises ``VaultError(CANNOT_OPEN)``.
    """
    try:
        return records.open(row)
    except VaultError as error:
        if needed or error.code is not Code.CANNOT_OPEN:
            raise
        return None


def past_versions(records: Records, key: str, past: list[Past], row: Row | None) -> list[Record]:
    """Past versions as records; one that does not open is reported and left out."""
    versions: list[Record] = []
    for version in past:
        created_at = (
            row.created_at
            if row is not None and row.rid == version.rid
            else Sequencer.issued_at(version.rid)
        )
        try:
            versions.append(records.open_past(version, created_at, key))
        except CannotOpen:
            records.unopenable()
    return versions


class ShownRoom:
    """Bytes that a page may have of what its caller is shown, for callers who are not shown all:
    where a page ended by the stored bytes, it would tell how long the other values are.
    """

    def __init__(self, room: int) -> None:
        self._left = room

    def end(self, rendered: Sequence[object], *, more: bool) -> int | None:
        """The number of these records with which the page ends; ``None``: it may go on.

        ``more``: whether others follow.
        """
        for at, one in enumerate(rendered, 1):
            self._left -= shown_size(one)
            if self._left <= 0 and (more or at < len(rendered)):
                return at
        return None


def shown_size(one: object) -> int:
    """Bytes of a rendered record; 0 of one that is shown as a part of something else."""
    if isinstance(one, bytes):
        return len(one)
    return len(msgspec.json.encode(one)) if isinstance(one, dict) else 0
