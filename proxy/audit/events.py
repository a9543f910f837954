"""The one type of audit event, the context of a request that collects them, and their JSON.

None ever holds a value of a record.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import msgspec


class EventKind(enum.StrEnum):
    """The kind of an event: the member ``event`` of its line."""

    REVEAL = "reveal"  #: values of records, or figures over them, left the vault in the clear
    WRITE = "write"  #: records or their attachments were made or changed
    DELETE = "delete"  #: records or their attachments were ended
    ADMIN = "admin"  #: clients, schemas, policies, environments or keys were looked at or changed
    TOKEN = "token"  #: an access token was given, or looked at
    REFUSED = "refused"  #: a request was answered with an error
    MISS = "miss"  #: searches, or reads of one record, through the proxy that showed nothing
    #: needs attention: a revealed honeytoken, or tampering with the log or a row of the store
    ALARM = "alarm"
    #: the log itself: started, stopped, written again after it could not be, old lines removed
    LOG = "log"


#: Member and its meaning, in the order of members in a line.
MEMBERS: Final[dict[str, str]] = {
    "n": "sequence number of the line",
    "at": "time, UTC, ISO 8601 with milliseconds",
    "event": "reveal, write, delete, admin, token, refused, miss, alarm or log",
    "via": "interface, proxy or command: the channel",
    "by": "the client of the interface, or `local:` and the user at the local socket; for a command, the operating system user who ran it",
    "environment": "the environment",
    "endpoint": "the name of the endpoint in the rule file",
    "operation": "the operation of the OpenAPI document, or the match of the rule file",
    "view": "the view of the rule file that applied to the caller: its roles, none or outside",
    "status": "the status of the response",
    "code": "the error code of the response",
    "schema": "the schema of the records",
    "count": "how many records; for refused and miss, how many requests",
    "records": "which records: keyed hashes of their keys; `domicile audit tail --record` finds one",
    "fields": "names of the fields shown in the clear",
    "revealed": "names of the fields whose values were in the response to a write",
    "covered": "names of the fields that were redacted or masked",
    "files": "ids of attachments",
    "purpose": "the purpose of the request (`x-purpose`), if a policy requires one",
    "approved": "the client that approved the request, if `auth.four_eyes` requires a second one",
    "subject": "the client, schema, policy, environment, key or note that was read or changed; of a start and of new rules, the version of the rules",
    "reason": "a constant text that gives the reason",
    "since": "when it happened, if the line could not be written then",
    "notes": "signed lines: the counter of the root over the notes of the store",
    "public_key": "signed lines: the public key that signs from now on",
    "covers": "signed lines: the first line that the digest covers",
    "digest": "signed lines: the digest of the lines before it",
    "key": "signed lines: the id of the key that signed it",
    "signature": "signed lines: Ed25519 over the members from event to key",
    "request": "the id of the request (`X-Request-Id`), if `forwarding.request_id` is on",
    "prev": "the hash of the line before",
    "hash": "the keyed hash of this line",
}

#: Records that one line names; of more there are further lines.
MOST_RECORDS: Final = 500

#: The reason in the line of an alarm about rows.
TAMPERED: Final = (
    "rows of the store have columns that differ from what is sealed in them, or do not open: they "
    "were left out"
)

#: The reason in the line of a request that was answered before.
REPEATED: Final = "answered as it was before (Idempotency-Key)"

#: The reason in the line of a delete by which records stay for a while.
MARKED: Final = "marked as deleted: the rule keeps the values for a while"

#: The reason in the line of new rules.
NEW_RULES: Final = "other rules are in force from here on"

#: What stands behind it where they protect less, before the number of differences.
LESS_PROTECTED: Final = "differences by which they protect less than those before"

#: The reason in the line of an alarm about a note.
NOTE_CHANGED: Final = "a note of the store was changed, rolled back, added or removed by something else than the program"

#: The reason in the line of an alarm about all notes at once.
NOTES_OLDER: Final = (
    "the notes of the store are older than the audit log says: an earlier state of it was put back"
)

#: Parameters of paths that name records, and those that name what administrators look after; no
#: line tells the others.
RECORD_PARAMETERS: Final = ("record_key", "source", "destination")
SUBJECTS: Final = ("approval_id", "client_id", "policy", "name", "environment_id")
_SUBJECTS: Final = frozenset(SUBJECTS)

#: The keyed hash by which lines name a record: of (environment, schema, key).
RecordId = Callable[[str, str, str], str]

_encode = msgspec.json.Encoder(enc_hook=str).encode
_ORDER: Final = {name: number for number, name in enumerate(MEMBERS)}


def encode_event(kind: EventKind, **members: Any) -> bytes:
    """The members of a line that say what happened, as JSON without its braces.

    ``None`` and empty values are left out.
    """
    present: dict[str, Any] = {"event": kind}
    for name in _in_order(tuple(members)):
        value = members[name]
        if value or value == 0:
            present[name] = value
    return _encode(present)[1:-1]


@lru_cache(256)
def _in_order(members: tuple[str, ...]) -> list[str]:
    """These members in the order of a line."""
    try:
        return sorted(members, key=_ORDER.__getitem__)
    except KeyError as unknown:
        raise ValueError(
            f"{unknown.args[0]} may not stand in an audit line: add it to MEMBERS"
        ) from None


@lru_cache(1024)
def reveal_parts(
    by: str, environment: str, operation: str, schema: str, fields: tuple[str, ...]
) -> tuple[bytes, bytes]:
    """The parts before and behind the records in lines of an answered request of the interface
    that showed these fields of records in the clear, and did nothing else.
    """
    about = {"via": "interface", "by": by, "environment": environment, "operation": operation}
    head = encode_event(EventKind.REVEAL, **about, status=200, schema=schema)
    return head, b',"fields":%b' % _encode(sorted(fields))


def reveal_line(parts: tuple[bytes, bytes], ids: Sequence[str]) -> bytes:
    """The line of such a request that showed the records of these ids, at most ``MOST_RECORDS``."""
    head, fields = parts
    if not ids:
        return head + b',"count":0'
    return b'%b,"count":%d,"records":["%b"]%b' % (head, len(ids), '","'.join(ids).encode(), fields)


def with_request(bodies: Iterable[bytes], request_id: str) -> tuple[bytes, ...]:
    """The members of lines, with the id of their request."""
    member = b',"request":"%b"' % request_id.encode("ascii")
    return tuple(body + member for body in bodies)


class AuditEvent:
    """Events of one kind on records of one schema in one request."""

    __slots__ = ("covered", "fields", "files", "keys", "kind", "schema", "unnamed")

    def __init__(self, kind: EventKind, schema: str) -> None:
        self.kind = kind
        self.schema = schema
        self.keys: dict[str, None] = {}
        self.unnamed = 0  #: records, or groups of them, without a key that the vault knows
        self.fields: set[str] = set()
        self.covered: set[str] = set()  #: fields that were redacted or masked
        self.files: list[str] = []

    def lines(
        self, about: Mapping[str, Any], record_id: RecordId, revealed: Collection[str] = ()
    ) -> list[bytes]:
        """The lines of this event; the first one has its count."""
        environment = about["environment"]
        # no comprehension, which is one more call
        ids = [*map(record_id, repeat(environment), repeat(self.schema), self.keys)]
        common = {
            **about,
            "schema": self.schema,
            "fields": sorted(self.fields),
            "revealed": sorted(revealed),
            "covered": sorted(self.covered),
        }
        count = len(ids) + self.unnamed
        first = {"count": count, "records": ids[:MOST_RECORDS], "files": self.files}
        lines = [encode_event(self.kind, **common, **first)]
        if len(ids) <= MOST_RECORDS:
            return lines
        return lines + [
            encode_event(self.kind, **common, records=ids[at : at + MOST_RECORDS])
            for at in range(MOST_RECORDS, len(ids), MOST_RECORDS)
        ]


class AuditContext:
    """Audit events of one request, passed from layer to layer.

    A use case adds its changes to records. A request that adds nothing has one coarse line, so a
    new operation is audited without knowing of the log.
    """

    __slots__ = (
        "approved", "by", "environment", "events", "kind", "operation", "path", "purpose", "schema", "subject",
        "tampered",
    )  # fmt: skip

    def __init__(
        self, operation: str, kind: EventKind, path: Mapping[str, str], schema: str | None = None
    ) -> None:
        """``kind``: that of the coarse line; ``path``: the parameters in the path."""
        self.operation = operation
        self.kind = kind
        self.path = path
        self.schema = schema if schema is not None else path.get("schema", "")
        self.by = ""  #: the client, once it has proved itself
        self.environment = ""
        self.events: list[AuditEvent] = []
        #: by schema: rows whose columns differ from their sealed body
        self.tampered: dict[str, int] = {}
        self.subject: str | None = None  #: object that an administrator viewed or changed
        self.approved: str | None = None  #: the second client that approved it
        self.purpose: str | None = None  #: purpose, if a policy requires one

    def add(
        self,
        kind: EventKind,
        schema: str,
        keys: Iterable[str | None] = (),
        fields: Iterable[str] = (),
    ) -> AuditEvent:
        """Add records and fields to the event of that kind and schema; returns it.

        A key of ``None`` counts a record whose key the vault does not know.
        """
        event = self._event(kind, schema)
        for key in keys:
            if key is None:
                event.unnamed += 1
            else:
                event.keys[key] = None
        event.fields.update(fields)
        return event

    def add_tampered(self, schema: str, count: int) -> None:
        """Add rows that differ from their sealed body, or do not open."""
        self.tampered[schema] = self.tampered.get(schema, 0) + count

    @property
    def changed(self) -> bool:
        """Whether something was made, changed or ended, which stands whatever the answer is."""
        for event in self.events:  # noqa: SIM110 - a generator costs as much as all the rest
            if event.kind is not EventKind.REVEAL:
                return True
        return False

    def lines(self, status: int | None, reason: str | None, record_id: RecordId) -> list[bytes]:
        """The lines of the request, those of alarms about rows last.

        A write and a reveal of the same records share a line.
        """
        about = self.about(status, reason)
        if self.subject is None and not _SUBJECTS.isdisjoint(self.path):
            self.subject = next(self.path[name] for name in SUBJECTS if name in self.path)
        if len(self.events) == 1 and self.kind is not EventKind.ADMIN and not self.tampered:
            return self.events[0].lines(about, record_id)
        lines = [] if self.events else [self._coarse(about, record_id)]
        if self.events and self.kind is EventKind.ADMIN:
            lines.append(encode_event(self.kind, **about, subject=self.subject))
        reveals = {one.schema: one for one in self.events if one.kind is EventKind.REVEAL}
        for event in self.events:
            if event.kind is EventKind.REVEAL:
                continue
            revealed: Collection[str] = ()
            same = reveals.get(event.schema) if event.kind is EventKind.WRITE else None
            if same is not None and same.keys == event.keys:
                revealed = reveals.pop(event.schema).fields
            lines += event.lines(about, record_id, revealed)
        for event in reveals.values():
            lines += event.lines(about, record_id)
        return lines + self.alarms(status, reason) if self.tampered else lines

    def alarms(self, status: int | None, reason: str | None = None) -> list[bytes]:
        """The lines of rows that were tampered with."""
        about = {**self.about(status, reason), "reason": TAMPERED}
        return [
            encode_event(EventKind.ALARM, **about, schema=schema, count=count)
            for schema, count in self.tampered.items()
        ]

    def about(self, status: int | None, reason: str | None) -> dict[str, Any]:
        """The members that all lines of the request have."""
        return {
            "via": "interface",
            "by": self.by,
            "environment": self.environment,
            "operation": self.operation,
            "status": status,
            "purpose": self.purpose,
            "approved": self.approved,
            "reason": reason,
        }

    def _event(self, kind: EventKind, schema: str) -> AuditEvent:
        for event in self.events:
            if event.kind is kind and event.schema == schema:
                return event
        event = AuditEvent(kind, schema)
        self.events.append(event)
        return event

    def _coarse(self, about: Mapping[str, Any], record_id: RecordId) -> bytes:
        records = [
            record_id(self.environment, self.schema, self.path[name])
            for name in RECORD_PARAMETERS
            if name in self.path
        ]
        return encode_event(
            self.kind, **about, schema=self.schema, records=records, subject=self.subject
        )
