"""Audit of exchanges: a line for each write, delete or reveal, before the answer leaves.

This is on the way of every matched request, so everything that can be made once is made when rules
load: a line is put together of bytes that are there already.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from proxy.audit.events import MARKED, EventKind, encode_event
from proxy.audit.services import AuditServices
from proxy.model.schema import Value
from proxy.offload import STRIDE, busy, each, give_way
from proxy.redactor.exchange.request_tokens import StoredToken
from proxy.redactor.plan import Outcome
from proxy.redactor.redact import BodyObject
from proxy.redactor.rules import Operation, Verb
from proxy.redactor.views import FieldView
from proxy.vault.collection import Collection as VaultCollection
from proxy.vault.proxied import OpenRow, Revealed, StagedWrite

_encode = msgspec.json.Encoder().encode

#: Combinations of fields whose text is kept; an application has a handful.
_CAPACITY: Final = 1_000

#: A line of one record: its head, the status, its tail, the record, the fields.
_ONE: Final = b'%b,"status":%d,%b,"count":1,"records":["%b"],"fields":[%b]'

_DISPLACES: Final = (
    b'"reason":"the application gave it the id of a record that the vault had: see its history"'
)
_DOUBT: Final = b'"reason":"nobody knows whether the application took it"'
_BOTH: Final = (
    b'"reason":"the answer does not prove that the application changed it: both versions are kept"'
)
_MARKED: Final = b'"reason":"%b"' % MARKED.encode()

# Members of an enumeration are looked up several times slower in it.
_REFUSED, _TAKEN = Outcome.REFUSED, Outcome.TAKEN


class Reveals(NamedTuple):
    """Values that an answer is about to reveal."""

    fields: frozenset[str]  #: of values in the answer
    items: Sequence[BodyObject]
    restored: Sequence[Sequence[Value | None]]
    revealed: Revealed | None  #: how the vault resolved it

    @property
    def opened(self) -> Collection[int]:
        return self.revealed.opened.keys() if self.revealed is not None else ()

    async def keys(self, lone: str | None, collection: VaultCollection) -> list[str | None]:
        """The keys of the records with values in the answer.

        ``lone``: the only one, named by the request.
        """
        keys: list[str | None] = []
        records = self.revealed.rows if self.revealed is not None else None
        for index, (item, row) in enumerate(zip(self.items, self.restored, strict=True)):
            if not any(row):
                continue
            key = item.id or lone
            if key is None and records is not None and (record := records[index]) is not None:
                key = record.name or collection.sealer.open_key(record.row)
            keys.append(key)
            if len(keys) % STRIDE == 0 and busy():
                await give_way()
        return keys


#: An answer without values.
NO_REVEALS: Final = Reveals(frozenset(), (), (), None)


class ExchangeAudit:
    """Writer of the audit lines of one operation."""

    __slots__ = (
        *("_about", "_covered", "_environment", "_fields", "_head", "_marks_only", "_miss"),
        *("_schema", "_services", "_tail", "_written", "group", "honeytokens", "sink"),
    )

    def __init__(
        self,
        services: AuditServices,
        environment: str,
        operation: Operation,
        view: FieldView | None = None,
    ) -> None:
        self.sink, self.group = services.sink, services.group
        self.honeytokens = services.honeytokens  #: records of which more is told
        #: fields that answers show masked
        self._covered = frozenset() if view is None else frozenset(view.masks)
        self._services = services
        self._environment = environment
        self._schema = operation.entity.schema.name
        self._about = {
            "via": "proxy",
            "environment": environment,
            "endpoint": operation.endpoint.name,
            "operation": operation.label,
            "view": None if view is None else view.name,
        }
        self._marks_only = operation.keep is not None
        written = EventKind.DELETE if operation.verb is Verb.DELETE else EventKind.WRITE
        self._head = encode_event(EventKind.REVEAL, **self._about)
        self._written = encode_event(written, **self._about)
        self._miss = encode_event(EventKind.MISS, **self._about, schema=self._schema)
        self._tail = encode_event(EventKind.REVEAL, schema=self._schema).partition(b",")[2]
        self._fields: dict[frozenset[str], bytes] = {}

    async def revealed(
        self,
        status: int,
        keys: Sequence[str | None],
        fields: frozenset[str],
        opened: Collection[int],
    ) -> None:
        """Values stand in the answer. Raises ``VaultError(AUDIT_DOWN)``: then they must not.

        ``opened``: the records looked at.
        """
        marks = await self._marks(keys)
        clear, covered = fields, b""
        if self._covered:
            clear, covered = fields - self._covered, self._masked(fields)
        line = self._line(self._head, status, (len(keys), marks), clear) + covered
        if self.honeytokens.some:
            self.sink.put(line, *self._alarms(status, marks, opened))
        else:
            self.sink.put(line)
        if self.sink.flushes:
            await self.sink.flushed()

    def missed(self) -> None:
        self._services.misses.add(self._miss)

    async def revealed_anywhere(
        self,
        status: int,
        opened: Mapping[int, OpenRow],
        collection: VaultCollection,
        fields: frozenset[str],
    ) -> None:
        """Values of these fields stand anywhere in a page. Raises as ``revealed``."""
        keys = [collection.sealer.open_key(one.row) for one in opened.values()]
        await self.revealed(status, keys, fields, opened.keys())

    async def quoted(self, status: int, tokens: Collection[StoredToken]) -> None:
        """Stored values stand in an answer that is no success. Raises as ``revealed``."""
        records = {one.rid: one.key for one in tokens}
        await self.revealed(
            status, list(records.values()), frozenset(one.field for one in tokens), records.keys()
        )

    async def settled(
        self, outcome: Outcome, status: int, writes: Sequence[StagedWrite], revealed: frozenset[str]
    ) -> None:
        """Record a write, and the fields of it that the answer reveals.

        Raises as ``revealed``; the write is recorded later then.
        """
        if outcome is _REFUSED:
            return
        unnamed = [one for one in writes if one.unnamed]
        doubtful = outcome is not _TAKEN or len(unnamed) == len(writes)
        if unnamed and not doubtful:
            await self.doubted(unnamed, status)
            writes = [one for one in writes if not one.unnamed]
        line, marks = await self._written_line(status, writes)
        if doubtful:
            line = b"%b,%b" % (line, _DOUBT)
        elif writes[0].displaces or (len(writes) > 1 and any(one.displaces for one in writes)):
            line = b"%b,%b" % (line, _DISPLACES)
        elif writes[0].both:
            line = b"%b,%b" % (line, _BOTH)
        elif self._marks_only:
            line = b"%b,%b" % (line, _MARKED)
        clear, covered = revealed, b""
        if self._covered:
            clear, covered = revealed - self._covered, self._masked(revealed)
        if clear:
            names = self._fields.get(clear) or self._names(clear)
            line = b'%b,"revealed":[%b]' % (line, names)
        line += covered
        if revealed and self.honeytokens.some:
            self.sink.put_or_queue(line, *self._alarms(status, marks, [one.rid for one in writes]))
        else:
            self.sink.put_or_queue(line)
        if self.sink.flushes:
            await self.sink.flushed()

    async def doubted(self, writes: Sequence[StagedWrite], status: int = 0) -> None:
        """Record a write of unknown outcome, without an answer, or of which that says nothing.

        Never raises: nobody waits for it.
        """
        line, _ = await self._written_line(status, writes)
        self._services.put_quietly(b"%b,%b" % (line, _DOUBT))

    def wrote(
        self, status: int, key: str, fields: frozenset[str], revealed: frozenset[str]
    ) -> bytes:
        """The line of one record that was written, and of which the answer shows these fields."""
        mark = self._services.record_id(self._environment, self._schema, key).encode()
        names = self._fields.get(fields) or self._names(fields)
        line = _ONE % (self._written, status, self._tail, mark, names)
        if self._covered:
            clear, masked = revealed - self._covered, self._masked(revealed)
            visible = b',"revealed":[%b]' % self._names(clear) if clear else b""
            return line + visible + masked
        return line + b',"revealed":[%b]' % (self._fields.get(revealed) or self._names(revealed))

    def showed(self, status: int, key: str, revealed: frozenset[str]) -> bytes:
        """The line of one record of which an answer shows these fields."""
        name = self._services.record_id(self._environment, self._schema, key)
        if self._covered:
            line = self._line(self._head, status, (1, [name]), revealed - self._covered)
            return line + self._masked(revealed)
        names = self._fields.get(revealed) or self._names(revealed)
        return _ONE % (self._head, status, self._tail, name.encode(), names)

    async def _written_line(
        self, status: int, writes: Sequence[StagedWrite]
    ) -> tuple[bytes, list[str]]:
        if len(writes) == 1 and (key := writes[0].key) is not None:  # as nearly always
            marks = [self._services.record_id(self._environment, self._schema, key)]
            fields = frozenset(writes[0].tokens)
            if status and (names := self._fields.get(fields)) is not None:
                about = self._written, status, self._tail, marks[0].encode(), names
                return _ONE % about, marks
        else:
            marks = await self._marks([one.key for one in writes])
            fields = frozenset(name for one in writes for name in one.tokens)
        return self._line(self._written, status, (len(writes), marks), fields), marks

    def _line(
        self, head: bytes, status: int, records: tuple[int, Sequence[str]], fields: frozenset[str]
    ) -> bytes:
        count, marks = records
        line = (
            b'%b,"status":%d,%b' % (head, status, self._tail)
            if status
            else b"%b,%b" % (head, self._tail)
        )
        line = b'%b,"count":%d' % (line, count)
        if marks:
            line = b'%b,"records":["%b"]' % (line, '","'.join(marks).encode())
        if not fields:
            return line
        return b'%b,"fields":[%b]' % (line, self._fields.get(fields) or self._names(fields))

    def _masked(self, fields: frozenset[str]) -> bytes:
        """The end of a line that tells which of these fields were masked."""
        masked = fields & self._covered
        return b',"covered":[%b]' % self._names(masked) if masked else b""

    def _names(self, fields: frozenset[str]) -> bytes:
        text = self._fields.get(fields)
        if text is None:
            if len(self._fields) >= _CAPACITY:
                self._fields.clear()
            text = self._fields[fields] = _encode(sorted(fields))[1:-1]
        return text

    async def _marks(self, keys: Sequence[str | None]) -> list[str]:
        mark, environment, schema = self._services.record_id, self._environment, self._schema
        if len(keys) == 1 and (only := keys[0]) is not None:
            return [mark(environment, schema, only)]
        return await each(
            partial(mark, environment, schema), [key for key in keys if key is not None]
        )

    def _alarms(self, status: int, marks: Sequence[str], rids: Collection[int]) -> list[bytes]:
        touched = self._services.honeytokens.touched(self._environment, self._schema, rids)
        return self._services.alarms(
            [*marks, *touched], **self._about, status=status, schema=self._schema
        )
