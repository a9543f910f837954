"""The lines that each request to the interface leaves in the audit log before its answer leaves.

A new operation of the table is audited unless the table calls it ``quiet``.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from proxy.audit.events import REPEATED, AuditContext, AuditEvent, EventKind, RecordId, reveal_line
from proxy.audit.services import AuditServices, Refusal, Refusals
from proxy.errors import VaultError
from proxy.model.rights import FULL, Rights
from proxy.offload import FEW, each

#: The rights of the caller to a schema. Raises ``VaultError`` where it has gone meanwhile.
RightsTo = Callable[[str], Rights]
#: Ids of records, by what ``RecordId`` takes.
_Ids = Mapping[tuple[str, str, str], str]
_NO_IDS: Final[_Ids] = MappingProxyType({})


class Auditing:
    """The lines of one instance's interface."""

    def __init__(self, services: AuditServices) -> None:
        self.services = services
        self._sink = services.sink
        #: Raises ``VaultError(AUDIT_DOWN)`` while no line can be written.
        self.ready: Callable[[], None] = services.sink.ready
        self.refusals = Refusals(services.sink)
        self.verifying = asyncio.Lock()  #: the log is read as a whole by one at a time

    async def answered(
        self, audit: AuditContext, status: int, rights_to: RightsTo, *, repeated: bool = False
    ) -> None:
        """Write the lines of a request that is about to be answered.

        Raises ``VaultError(AUDIT_DOWN)``: then it must not be.
        """
        if status >= 400:
            self.refused(audit, status, "")
            return
        ids = _NO_IDS
        for event in audit.events:
            _narrow(event, rights_to)
            if len(event.keys) > FEW:
                ids = await self._with_ids(ids, audit.environment, event)
        put = self._sink.put_or_queue if audit.changed else self._sink.put
        put(*self._lines(audit, status, REPEATED if repeated else None, ids))
        if self._sink.flushes:
            await self._sink.flushed()

    async def _with_ids(self, ids: _Ids, environment: str, event: AuditEvent) -> _Ids:
        """These ids, and those of the many records of an event, worked out in slices."""
        names = [(environment, event.schema, key) for key in event.keys]
        fresh = [name for name in names if name not in ids]
        return {**ids, **dict(zip(fresh, await each(self._id, fresh), strict=True))}

    def _id(self, record: tuple[str, str, str]) -> str:
        return self.services.record_id(*record)

    @property
    def prompt(self) -> bool:
        """Whether ``revealed`` can write lines."""
        return not self._sink.flushes and not self.services.honeytokens.some

    def revealed(self, parts: tuple[bytes, bytes], records: tuple[str, str, Sequence[str]]) -> None:
        """Write the line of a request that is about to be answered, and showed these records:
        environment, schema and keys. ``parts``: as ``reveal_parts`` made them.

        Raises ``VaultError(AUDIT_DOWN)``: then it must not be.
        """
        environment, schema, keys = records
        record_id = self.services.record_id
        self._sink.put(reveal_line(parts, [record_id(environment, schema, key) for key in keys]))

    def refused(self, audit: AuditContext, status: int, code: str) -> None:
        """Write that a request was, or is about to be, answered with an error. Never raises."""
        self.broken(audit, status)
        client = audit.by or audit.subject or ""
        self.refusals.add(Refusal(audit.operation, client, audit.environment, status, code))

    def broken(self, audit: AuditContext, status: int | None = None) -> None:
        """Write the changes of a request that was cut off. Never raises."""
        if audit.changed:
            self.services.put_quietly(*self._lines(audit, status, "not answered as done"))
        elif audit.tampered:
            self.services.put_quietly(*audit.alarms(status))

    def _lines(
        self, audit: AuditContext, status: int | None, reason: str | None, ids: _Ids = _NO_IDS
    ) -> list[bytes]:
        services, record_id = self.services, self.services.record_id
        if ids:
            record_id = partial(_id_of, ids, record_id)
        lines = audit.lines(status, reason, record_id)
        if not services.honeytokens.some:
            return lines
        about = audit.about(status, reason)
        for event in audit.events:
            if event.kind is EventKind.REVEAL:
                schema = event.schema
                baits = [record_id(audit.environment, schema, key) for key in event.keys]
                lines += services.alarms(baits, **about, schema=schema)
        return lines


def _id_of(ids: _Ids, others: RecordId, environment: str, schema: str, key: str) -> str:
    return ids.get((environment, schema, key)) or others(environment, schema, key)


def _narrow(event: AuditEvent, rights_to: RightsTo) -> None:
    """Split the revealed fields into those that the caller saw in the clear and those covered."""
    if event.kind is not EventKind.REVEAL:
        return
    try:
        rights = rights_to(event.schema)
    except VaultError:
        return  # the schema has gone: all fields stand in the line
    if rights is FULL:
        return
    event.covered = event.fields & set(rights.redacted_fields)
    event.fields = {name for name in event.fields if rights.shows_value(name)}
