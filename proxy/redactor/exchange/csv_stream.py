"""Restores an export slice by slice as it arrives: memory holds a slice, whatever the length."""

from functools import partial

from proxy.offload import SMALL, run_in_thread
from proxy.redactor import redact
from proxy.redactor.csv_records import CsvRecords, CsvSlice, charset
from proxy.redactor.exchange.error_answers import refuses_unread
from proxy.redactor.exchange.event_stream import StreamExchange
from proxy.redactor.message import RawHeaders, header


class CsvExchange(StreamExchange):
    """The exchange of an operation with ``response: {restore: csv}``."""

    _records: CsvRecords
    _noted = False  #: whether it was counted that the export cannot be read

    def stream(self, status: int, headers: RawHeaders) -> "CsvExchange | None":
        """Return the restorer of this answer; ``None`` if it is no export in a readable charset."""
        rule = self._operation.response
        codec = charset(headers)
        if status not in rule.success or codec is None or self._is_head():
            return None
        if header(headers, b"content-encoding") is not None:
            return None
        ident = rule.id.name if rule.id is not None else ""
        most = self._operation.endpoint.limits.body
        self._status = status
        self._records = CsvRecords(rule.columns, ident, codec, most)
        return self

    async def restore(self, piece: bytes) -> bytes:
        """The records that this piece completes, with values. Raises ``VaultError``."""
        long = len(piece) > SMALL
        return await self._restored_slice(await run_in_thread(long, self._records.feed, piece))

    async def rest(self) -> bytes:
        """The last record, where it has no line end. Raises ``VaultError``."""
        return await self._restored_slice(self._records.end())

    async def _restored_slice(self, some: CsvSlice) -> bytes:
        if self._records.unread and not self._noted:
            self._noted = True
            self._collection.observe("unreadable_answer")
            if refuses_unread(self._operation):
                raise redact.unreadable_answer()
        if not any(item.spots for item in some.items):
            return some.raw
        write = partial(self._records.written, some)
        return await self._restored_items(some.raw, [*some.items], (write, len(some.raw) > SMALL))
