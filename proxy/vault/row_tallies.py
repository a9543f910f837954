"""Whether the rows of an environment are those that were committed: a sum over each table, which
the store keeps and only the vault can seal (``storage.base.RowTally``).

A row that is put back, removed or added in the database does not fit the sum. The key of the sums
stands in a sealed note, with the tables that have one and how often each was written when it was
last compared: so neither a sum can be taken away nor an older table with its older sum be put back
before that.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final

import msgspec

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import fresh_bytes, random_bytes
from proxy.storage.base import Store

_KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 16
_NONCE_BYTES: Final = 16
_TAG_BYTES: Final = 16
_SUM_BYTES: Final = 8 + _DIGEST_BYTES  #: counter and total


class _Book(msgspec.Struct):
    """Content of the note."""

    key: bytes
    counters: dict[str, int]  #: by table


_decode = msgspec.json.Decoder(_Book).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class TableTally:
    """Sums up the rows of one table.

    The sum is masked: with many sums one could find several rows to roll back that leave it
    unchanged.
    """

    __slots__ = ("_mask", "_row", "_table", "_tag")

    def __init__(self, key: bytes, table: str) -> None:
        self._table = table
        self._row, self._mask, self._tag = (
            blake2b(table.encode(), key=key, digest_size=size, person=use)
            for use, size in ((b"row", _DIGEST_BYTES), (b"mask", _SUM_BYTES), (b"tag", _TAG_BYTES))
        )

    def digest(self, rid: int, body: bytes, key_sealed: bytes) -> int:
        """Return what a row adds to the sum."""
        keyed = self._row.copy()
        keyed.update(b" %d %b %b" % (rid, body, key_sealed))
        return int.from_bytes(keyed.digest())

    def added(self, rows: Iterable[Sequence[Any]], body: int) -> int:
        copy, total = self._row.copy, 0
        for row in rows:  # no call of ``digest`` for each
            keyed = copy()
            ends = row[body][-_TAG_BYTES:], (row[2] or b"")[-_TAG_BYTES:]
            keyed.update(b" %d %b %b" % (row[0], *ends))
            total ^= int.from_bytes(keyed.digest())
        return total

    def mover(self, moved: dict[str, int]) -> Callable[..., None]:
        copy, table = self._row.copy, self._table

        # one call for each row that is written: no call of ``digest``
        def move(rid: int, *ends: bytes | None) -> None:
            total = moved.get(table, 0)
            for at in range(0, len(ends), 2):
                keyed = copy()
                keyed.update(b" %d %b %b" % (rid, ends[at] or b"", ends[at + 1] or b""))
                total ^= int.from_bytes(keyed.digest())
            moved[table] = total

        return move

    def seal(self, counter: int, total: int) -> bytes:
        """The sum as it is stored: nonce, masked counter and total, tag."""
        # with each group of commits: no calls of ``_masking`` and ``_signed``
        nonce = fresh_bytes(_NONCE_BYTES)
        mask, tag = self._mask.copy(), self._tag.copy()
        mask.update(nonce)
        clear = (counter << 8 * _DIGEST_BYTES) | total
        masked = nonce + (clear ^ int.from_bytes(mask.digest())).to_bytes(_SUM_BYTES)
        tag.update(masked)
        return masked + tag.digest()

    def open(self, sealed: bytes) -> tuple[int, int] | None:
        """Counter and sum; ``None`` where this did not seal them."""
        masked, tag = sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]
        if not compare_digest(tag, self._signed(masked)):
            return None
        clear = int.from_bytes(masked[_NONCE_BYTES:]) ^ self._masking(masked[:_NONCE_BYTES])
        return clear >> 8 * _DIGEST_BYTES, clear & ((1 << 8 * _DIGEST_BYTES) - 1)

    def _masking(self, nonce: bytes) -> int:
        keyed = self._mask.copy()
        keyed.update(nonce)
        return int.from_bytes(keyed.digest())

    def _signed(self, masked: bytes) -> bytes:
        keyed = self._tag.copy()
        keyed.update(masked)
        return keyed.digest()


class RowTallies:
    """The sums of one environment; ``load`` before use."""

    def __init__(self, store: Store, keyset: Keyset, environment: str, *, enabled: bool) -> None:
        self._store = store
        self._enabled = enabled
        self._note = SealedNote(store, keyset.aead(), environment, "tallies")
        self._book: _Book | None = None
        self._saving = asyncio.Lock()
        self._tables: set[str] = set()
        self._altered: set[str] = set()  #: tables whose sum was not the one of the note

    async def load(self) -> None:
        """Read the note, or begin it. Raises ``VaultError(CANNOT_OPEN)``."""
        if self._book is None:
            content = await self._note.read()
            self._book = (
                _Book(random_bytes(_KEY_BYTES), {}) if content is None else _decode(content)
            )

    async def keep(self, table: str) -> None:
        """Keep the sum of a table from now on, or no more. No effect where that is done."""
        if table in self._tables or self._book is None:
            return
        if not self._enabled:
            await self.forget(table)
            return
        least = self._book.counters.get(table)
        tally = TableTally(self._book.key, table)
        counter = await self._store.keep_tally(table, tally, first=least is None)
        self._tables.add(table)
        if counter is None or counter < (least or 0):
            self._altered.add(table)
        elif least is None:
            await self._save({table: counter})

    async def forget(self, table: str) -> None:
        self._tables.discard(table)
        self._altered.discard(table)
        if self._book is not None and table in self._book.counters:
            await self._save({table: None})

    async def altered(self, tables: Iterable[str]) -> list[str]:
        """Return the tables whose rows differ from those committed. Reads every row."""
        counters: dict[str, int | None] = {}
        altered = [table for table in tables if table in self._altered]
        for table in sorted(self._tables.intersection(tables) - self._altered):
            counter = await self._store.check_tally(table)
            if counter is None:
                altered.append(table)
            else:
                counters[table] = counter
        await self._save(counters)
        return altered

    async def _save(self, counters: Mapping[str, int | None]) -> None:
        """Note these counters, and forget tables that have none."""
        async with self._saving:
            book = self._book
            if book is None or counters.items() <= book.counters.items():
                return
            merged = {**book.counters, **counters}
            left = {table: counter for table, counter in merged.items() if counter is not None}
            self._book = _Book(book.key, left)
            await self._note.write(_encode(self._book))
