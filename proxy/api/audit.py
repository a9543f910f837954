"""What leaves a line of every request to the interface, before its answer leaves.

An operation need not know of it: use cases note what they do (``audit.events``), and one that notes
nothing has a coarse line. A new operation of the table is audited unless the table calls it
``quiet``.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from proxy.audit import events
from proxy.audit.events import AuditEvent, RecordEvent
from proxy.audit.honeytokens import Witness
from proxy.audit.refusals import Refusal, Refusals
from proxy.audit.sinks import quietly
from proxy.errors import VaultError
from proxy.model.record import Principal
from proxy.model.rights import FULL, Rights

NOBODY: Final = Principal("", "")

#: Parameters of paths that name records, and those that name what administrators look after; others
#: are not told.
RECORD_PARAMETERS: Final = ("record_key", "source", "destination")
SUBJECTS: Final = ("client_id", "policy", "name", "environment_id")

_REPEATED: Final = "answered as it was before (Idempotency-Key)"

#: The rights of the caller to a schema. Raises ``VaultError`` where it has gone meanwhile.
RightsTo = Callable[[str], Rights]


class AuditContext:
    """One request: what is known of it by now."""

    __slots__ = ("event", "noted", "operation", "path", "principal", "schema")

    def __init__(
        self, operation: str, event: AuditEvent, path: Mapping[str, str], schema: str | None = None
    ) -> None:
        self.operation = operation
        self.event = event
        self.path = path
        self.schema = schema if schema is not None else path.get("schema", "")
        self.principal = NOBODY
        self.noted = events.begin_page()


class Auditing:
    """The lines of one instance's interface."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._sink = witness.sink
        self.refusals = Refusals(witness.sink)

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while no line can be written: before anything is looked
        at.
        """
        self._sink.ready()

    async def answered(
        self, page: AuditContext, status: int, rights_to: RightsTo, *, repeated: bool = False
    ) -> None:
        """Write the lines of a request that is about to be answered.

        Raises ``VaultError(AUDIT_DOWN)``: then it must not be.
        """
        if status >= 400:
            self.refused(page, status, "")
            return
        for part in page.noted.parts:
            _narrow(part, rights_to)
        put = self._sink.happened if page.noted.changed else self._sink.put
        put(*self._bodies(page, status, _REPEATED if repeated else None))
        if self._sink.flushes:
            await self._sink.flushed()

    def refused(self, page: AuditContext, status: int, code: str) -> None:
        """A request was, or is about to be, answered with an error. Never raises."""
        self.broken(page, status)
        by, environment = (
            page.principal.client or page.noted.subject or "",
            page.principal.environment,
        )
        self.refusals.tell(Refusal(page.operation, by, environment, status, code))

    def broken(self, page: AuditContext, status: int | None = None) -> None:
        """What was changed stands, although the request did not come to its end. Never raises."""
        if page.noted.changed:
            quietly(self._sink, *self._bodies(page, status, "not answered as done"))
        elif page.noted.tampered:
            quietly(self._sink, *events.alarms(page.noted, self._about(page, status, None)))

    def _bodies(self, page: AuditContext, status: int | None, reason: str | None) -> list[bytes]:
        noted, path = page.noted, page.path
        environment = page.principal.environment

        def marked(schema: str, key: str) -> str:
            return self.witness.mark(environment, schema, key)

        about = self._about(page, status, reason)
        if noted.subject is None:
            noted.subject = next((path[name] for name in SUBJECTS if name in path), None)
        if not noted.parts:
            about["schema"] = page.schema
            about["records"] = [
                marked(page.schema, path[name]) for name in RECORD_PARAMETERS if name in path
            ]
        lines = events.bodies(noted, about, page.event, marked) + events.alarms(noted, about)
        if self.witness.baits:
            for part in noted.parts:
                if part.event is AuditEvent.REVEAL:
                    marks = [marked(part.schema, key) for key in part.keys]
                    lines += self.witness.alarms(marks, **{**about, "schema": part.schema})
        return lines

    def _about(self, page: AuditContext, status: int | None, reason: str | None) -> dict[str, Any]:
        return {
            "via": "interface",
            "by": page.principal.client,
            "environment": page.principal.environment,
            "operation": page.operation,
            "status": status,
            "reason": reason,
        }


def _narrow(part: RecordEvent, rights_to: RightsTo) -> None:
    """Of the fields that were revealed, those that the caller sees as they are, and those that it
    sees covered.
    """
    if part.event is not AuditEvent.REVEAL:
        return
    try:
        rights = rights_to(part.schema)
    except VaultError:
        return  # the whole is told
    if rights is FULL:
        return
    part.covered = part.fields & set(rights.redacted_fields)
    part.fields = {name for name in part.fields if rights.tells(name)}
