"""Bodies that an earlier version of the program sealed bind no columns: they are sealed again, a
few pages with each maintenance, until a walk through everything finds none.

Completion is noted in a sealed note. From then on a body without bindings was put there by a
foreign program, and does not open (``Tampered``).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.errors import CannotOpen
from proxy.storage.base import Store
from proxy.storage.changes import Change, ReplaceCiphertext, SealedPart
from proxy.storage.notes import FollowedNote
from proxy.storage.rows import File, Row, Staged
from proxy.vault.seal import Sealer

#: Rows of one page, which is one commit, and pages of one round of maintenance.
_ROWS: Final = 100
_PAGES: Final = 100


class ColumnBinding:
    """Progress of binding columns to bodies in one environment; ``load`` before use."""

    def __init__(self, store: Store, keyset: Keyset, environment: str) -> None:
        self._store = store
        self._note = SealedNote(store, keyset.aead(), environment, "columns")
        self._loaded = False
        self.complete = False  #: whether every body does
        self._table = ""  #: that the walk is at
        self._after = 0
        self._clean = True  #: whether the walk has found nothing to do so far

    async def load(self) -> None:
        """Read whether it is complete. Raises ``VaultError(CANNOT_OPEN)``."""
        if not self._loaded:
            self.complete = await self._note.read() is not None
            self._loaded = True

    async def finish(self) -> None:
        """Write down that every body binds its columns; no effect where that is known."""
        if not self.complete:
            await self._note.write(b"complete", FollowedNote)
            self.complete = True

    async def round(self, sealers: Mapping[str, Sealer]) -> None:
        """Go on through these tables; the walk that finds nothing makes it complete.

        Raises the errors of the store; a later round resumes here.
        """
        pages = 0
        for table in sorted(sealers):
            while not self.complete and table >= self._table and pages < _PAGES:
                self._after = self._after if table == self._table else 0
                self._table = table
                if not await self._page(table, sealers[table]):
                    break
                pages += 1
                await asyncio.sleep(0)
            if pages == _PAGES:
                return
        if self._clean:
            await self.finish()
        self._table, self._after, self._clean = "", 0, True

    async def _page(self, table: str, sealer: Sealer) -> bool:
        """Seal the next rows of a table; whether there were any."""
        rows = await self._store.scan(table, self._after, _ROWS)
        if not rows:
            return False
        changes, _ = await sealed_again(self._store, table, sealer, rows)
        if changes:
            self._clean = False
            await self._store.commit(table, changes)
        self._after = rows[-1].rid
        return True


async def sealed_again(
    store: Store, table: str, sealer: Sealer, rows: Sequence[Row]
) -> tuple[list[Change], int]:
    """Seal rows and their files in the current format under the current key.

    Also returns the number of rows that do not open; they stay as they are.
    """
    files = await store.files(table, [row.rid for row in rows])
    staged = await store.staged(table, [row.rid for row in rows if row.staged])
    changes: list[Change] = []
    unreadable = 0
    for row in rows:
        try:
            changes += row_again(sealer, row, files.get(row.rid, ()), staged.get(row.rid, ()))
        except CannotOpen:
            unreadable += 1
    return changes, unreadable


def row_again(
    sealer: Sealer, row: Row, files: Iterable[File], staged: Iterable[Staged]
) -> list[Change]:
    """The same for one row; nothing where that is so. Raises ``VaultError(CANNOT_OPEN)``."""
    changes: list[Change] = []
    before, after = (row.body, row.key_sealed), sealer.row_again(row)
    if after != before:
        changes.append(ReplaceCiphertext(SealedPart.ROW, (row.rid,), before, after))
    changes += [
        ReplaceCiphertext(SealedPart.STAGED, (change.sid, change.rid), (change.body,), (body,))
        for change in staged
        if (body := sealer.staged_again(change, row.salt)) is not change.body
    ]
    changes += [
        ReplaceCiphertext(SealedPart.FILE, (file.file_id, file.rid), (file.sealed,), (sealed,))
        for file in files
        if (sealed := sealer.file_again(file, row.salt)) is not file.sealed
    ]
    return changes
