"""Every member that a line may have, in one table, and the events it tells of.

None ever holds a value of a record.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

import msgspec


class AuditEvent(enum.StrEnum):
    """What a line tells of."""

    REVEAL = "reveal"  #: values of records, or figures over them, left the vault in the clear
    WRITE = "write"  #: records or their attachments were made or changed
    DELETE = "delete"  #: records or their attachments were ended
    ADMIN = "admin"  #: clients, schemas, policies, environments or keys were looked at or changed
    TOKEN = "token"  #: an access token was given, or looked at
    REFUSED = "refused"  #: a request was answered with an error
    #: somebody has to look: a bait was revealed, or the log or a row of the store was tampered with
    ALARM = "alarm"
    #: the log itself: started, stopped, written again after it could not be, old lines removed
    LOG = "log"


#: Member → what it holds, in the order in which members stand in a line.
MEMBERS: Final[dict[str, str]] = {
    "n": "number of the line; one more than that of the line before",
    "at": "the instant, UTC, ISO 8601 with milliseconds",
    "event": "reveal, write, delete, admin, token, refused, alarm or log",
    "via": "interface, proxy or command: the way it came",
    "by": "the client of the interface; of a command, the user of the machine who ran it",
    "environment": "the environment",
    "endpoint": "the endpoint, as the rule file names it",
    "operation": "the operation of the interface document, or as the rule file writes its match",
    "status": "the status of the answer",
    "code": "the code of the error, as it was answered",
    "schema": "the schema of the records",
    "count": "how many records; of refused, how many requests",
    "records": "which records: keyed hashes of their keys; `domicile audit tail --record` finds one",
    "fields": "the fields that were in the clear, by name",
    "revealed": "the fields whose values stood in the answer to a write, by name",
    "covered": "the fields that were redacted or masked, by name",
    "files": "ids of attachments",
    "subject": "the client, schema, policy, environment or key that was looked at or changed",
    "reason": "a constant text that says why",
    "since": "the instant when it happened, of what could not be written then",
    "prev": "the hash of the line before",
    "hash": "the keyed hash of this line",
}

_encode = msgspec.json.Encoder(enc_hook=str).encode


def body(event: AuditEvent, **given: Any) -> bytes:
    """The members of a line that say what happened, without its braces; what is ``None`` or empty
    is left out.
    """
    unknown = given.keys() - MEMBERS.keys()
    if unknown:
        raise ValueError(
            f"{', '.join(sorted(unknown))} may not stand in an audit line: add it to MEMBERS"
        )
    told = {name: given[name] for name in MEMBERS if given.get(name) not in (None, "", [], ())}
    return _encode({"event": event.value, **told})[1:-1]


# What one request tells of records on its way through the use cases, and the lines that come of it.
#
# A use case says what it did, whoever asked for it: ``revealed``, ``written``, ``ended``. Whoever
# carries the request (the interface) opens the page with ``begin``, and makes lines of it at the
# end. Where no page is open, as in a command, nothing is noted. So an operation that is new has its
# lines without knowing of them.


#: Why the line of an alarm stands there.
TAMPERED: Final = (
    "rows of the store have columns that differ from what is sealed in them: they were left out"
)

#: Records that one line names; of more there are further lines.
MOST_RECORDS: Final = 500


class RecordEvent:
    """What happened to records of one schema."""

    __slots__ = ("covered", "event", "fields", "files", "keys", "loose", "schema")

    def __init__(self, event: AuditEvent, schema: str) -> None:
        self.event = event
        self.schema = schema
        self.keys: dict[str, None] = {}
        self.loose = 0  #: records, or groups of them, whose keys nobody knows
        self.fields: set[str] = set()
        self.covered: set[str] = set()  #: fields that were shown redacted or masked
        self.files: list[str] = []

    @property
    def count(self) -> int:
        """How many records."""
        return len(self.keys) + self.loose


class Noted:
    """The page of one request."""

    __slots__ = ("parts", "subject", "tampered")

    def __init__(self) -> None:
        self.parts: list[RecordEvent] = []
        #: by schema: rows whose columns differ from what is sealed in them
        self.tampered: dict[str, int] = {}
        self.subject: str | None = None  #: what an administrator looked at or changed

    def part(self, event: AuditEvent, schema: str) -> RecordEvent:
        """What is noted of this event and schema, to be added to."""
        for part in self.parts:
            if part.event is event and part.schema == schema:
                return part
        fresh = RecordEvent(event, schema)
        self.parts.append(fresh)
        return fresh

    @property
    def changed(self) -> bool:
        """Whether something was made, changed or ended, which stands whatever becomes of the
        answer.
        """
        return any(part.event is not AuditEvent.REVEAL for part in self.parts)


_current: ContextVar[Noted | None] = ContextVar("audit", default=None)


def begin_page() -> Noted:
    """A page of its own for this task, and for those that it starts."""
    noted = Noted()
    _current.set(noted)
    return noted


def revealed(schema: str, keys: Iterable[str | None], fields: Iterable[str]) -> None:
    """Records are shown to the caller."""
    if (noted := _current.get()) is not None:
        _add(noted.part(AuditEvent.REVEAL, schema), keys, fields)


def aggregated_event(schema: str, groups: int, fields: Iterable[str]) -> None:
    """Figures over records are shown to the caller, by these fields."""
    if (noted := _current.get()) is not None:
        part = noted.part(AuditEvent.REVEAL, schema)
        part.loose += groups
        part.fields.update(fields)


def note_written_event(
    schema: str, keys: Iterable[str | None], fields: Iterable[str], files: Iterable[str] = ()
) -> None:
    """Records were made or changed, in these fields, or got these files."""
    if (noted := _current.get()) is not None:
        part = noted.part(AuditEvent.WRITE, schema)
        _add(part, keys, fields)
        part.files.extend(files)


def ended(
    schema: str, keys: Iterable[str | None], more: int = 0, files: Iterable[str] = ()
) -> None:
    """Records were deleted, and ``more`` that hung on them; or these files of a record that stays."""
    if (noted := _current.get()) is not None:
        part = noted.part(AuditEvent.DELETE, schema)
        _add(part, keys, ())
        part.loose += more
        part.files.extend(files)


def fetched(schema: str, key: str, file: str) -> None:
    """The content of a file is shown to the caller."""
    if (noted := _current.get()) is not None:
        revealed(schema, (key,), ())
        noted.part(AuditEvent.REVEAL, schema).files.append(file)


def tampered(schema: str, count: int) -> None:
    """Rows were met whose columns differ from what is sealed in them."""
    if (noted := _current.get()) is not None:
        noted.tampered[schema] = noted.tampered.get(schema, 0) + count


def narrowed(schema: str, fields: Iterable[str]) -> None:
    """Of what was noted as revealed so far only these fields are in the answer."""
    if (noted := _current.get()) is not None:
        noted.part(AuditEvent.REVEAL, schema).fields &= set(fields)


def had_records() -> bool:
    """Whether the request had to do with any records so far; also where nobody keeps a page of it."""
    noted = _current.get()
    return noted is None or bool(noted.parts)


def about(subject: str | None) -> None:
    """Which client, schema, policy, environment or key the request is about: what an administrator
    changes, who asks for a token.
    """
    if (noted := _current.get()) is not None:
        noted.subject = subject


def _add(part: RecordEvent, keys: Iterable[str | None], fields: Iterable[str]) -> None:
    for key in keys:
        if key is None:
            part.loose += 1
        else:
            part.keys[key] = None
    part.fields.update(fields)


#: The mark of a record of the request's environment: (schema, key).
Marked = Callable[[str, str], str]


def bodies(
    noted: Noted, about: Mapping[str, Any], otherwise: AuditEvent, marked: Marked
) -> list[bytes]:
    """The lines of a request: what was noted, or one coarse line of the event ``otherwise``.

    ``about``: the members that all of them have.
    """
    parts = noted.parts
    lines: list[bytes] = []
    if not parts or otherwise is AuditEvent.ADMIN:
        lines.append(body(otherwise, **about, subject=noted.subject))
    by_schema = {part.schema: part for part in parts if part.event is AuditEvent.REVEAL}
    merged: list[RecordEvent] = []
    for part in parts:
        shown = by_schema.get(part.schema) if part.event is AuditEvent.WRITE else None
        if shown is not None and shown.keys == part.keys:
            merged.append(shown)
            lines += _of(part, about, marked, revealed=shown.fields)
        elif part.event is not AuditEvent.REVEAL:
            lines += _of(part, about, marked)
    for part in by_schema.values():
        if part not in merged:
            lines += _of(part, about, marked)
    return lines


def alarms(noted: Noted, about: Mapping[str, Any]) -> list[bytes]:
    """The lines of the alarms of a request."""
    return [
        body(
            AuditEvent.ALARM,
            **{**about, "schema": schema, "records": (), "count": count, "reason": TAMPERED},
        )
        for schema, count in noted.tampered.items()
    ]


def _of(
    part: RecordEvent, about: Mapping[str, Any], marked: Marked, revealed: Collection[str] = ()
) -> list[bytes]:
    """The lines of one part; its count stands in the first of them."""
    marks = _portions([marked(part.schema, key) for key in part.keys])
    more = {
        "fields": sorted(part.fields),
        "revealed": sorted(revealed),
        "covered": sorted(part.covered),
    }
    lines = [
        body(
            part.event,
            **about,
            schema=part.schema,
            count=part.count,
            records=marks[0],
            files=part.files,
            **more,
        )
    ]
    lines += [
        body(part.event, **about, schema=part.schema, records=some, **more) for some in marks[1:]
    ]
    return lines


def _portions(marks: Sequence[str]) -> list[Sequence[str]]:
    return [marks[at : at + MOST_RECORDS] for at in range(0, len(marks), MOST_RECORDS)] or [()]
